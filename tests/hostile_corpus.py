"""Everything a crawled corpus may hold to stop, fool or fill the disk of whoever reads it."""

import bz2
import gzip
import io
import json
import os
import stat
import tarfile
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

LARGE_BYTES = 1 << 30
GOOD_TEXT = b"def add(left, right):\n    return left + right\n" * 4


@dataclass(frozen=True)
class HostileFile:
    """`rule` is what the directory source drops it by; None where its bytes come through."""

    repository: str
    path: str
    rule: str | None


def write_hostile_tree(root: Path) -> list[HostileFile]:
    """Write the folder `root`, for the `directory` source with its default limits and no suffixes.

    Returns every row that must come of it: also of what is no file, but for the `.git` folder.
    """
    outside = root.parent / f"{root.name}-outside"
    outside.mkdir(parents=True)
    (outside / "secret.py").write_bytes(GOOD_TEXT)
    expected = [HostileFile("plain", f"good_{number}.py", None) for number in range(3)]
    for file in expected:
        _write(root / "plain" / file.path, GOOD_TEXT + file.path.encode())
    _write(root / ".git" / "config", b"[core]\n")
    _write(root / "plain" / ".git" / "HEAD", b"ref: refs/heads/main\n")
    expected += _texts(root / "texts") + _special_files(root / "special", outside) + _names(root / "names")
    expected.append(_out_of_reach(root / "deep"))
    return expected


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _texts(folder: Path) -> list[HostileFile]:
    texts = {
        "empty.py": b"",
        "invalid_utf8.py": b"x = '\xff\xfe\xfa'\n" * 20,
        "mixed_encodings.py": "a = 'é'\n".encode() * 9 + "b = 'é'\n".encode("latin-1") * 9,
        "utf16.py": "x = 'é'\n".encode("utf-16") * 20,
        "bom.py": b"\xef\xbb\xbf" + GOOD_TEXT,
        "nul.py": b"x = 1\0\0\n" * 20,
        "binary.py": bytes(range(256)) * 8,
        "bidirectional.py": "x = '\u202e\u2066'  # \u2069\n".encode() * 10,
        "old_mac.py": GOOD_TEXT.replace(b"\n", b"\r"),
    }
    for name, data in texts.items():
        _write(folder / name, data)
    with (folder / "one_line.py").open("wb") as file:  # sparse: takes no disk
        file.write(b"x = '")
        file.truncate(LARGE_BYTES)
    return [
        *(HostileFile("texts", name, None) for name in texts),
        HostileFile("texts", "one_line.py", "file_size"),
    ]


def _special_files(folder: Path, outside: Path) -> list[HostileFile]:
    folder.mkdir(parents=True)
    os.mkfifo(folder / "fifo.py")
    os.mknod(folder / "socket.py", stat.S_IFSOCK | 0o600)
    (folder / "loop").symlink_to(folder)
    (folder / "itself.py").symlink_to("itself.py")
    (folder / "dangling.py").symlink_to("nowhere.py")
    (folder / "out.py").symlink_to(outside / "secret.py")
    (folder / "out").symlink_to(outside)
    _write(folder / "forbidden.py", GOOD_TEXT)
    (folder / "forbidden.py").chmod(0)
    rules = {name: "link" for name in ("loop", "itself.py", "dangling.py", "out.py", "out")}
    rules |= {"fifo.py": "not_regular", "socket.py": "not_regular"}
    files = [HostileFile("special", name, rule) for name, rule in rules.items()]
    # Nothing is forbidden to root.
    return [*files, HostileFile("special", "forbidden.py", "readable" if os.geteuid() else None)]


def _names(folder: Path) -> list[HostileFile]:
    names = {
        b"new\nline.py": "new\nline.py",
        b"\xff\xfe.py": "\\xff\\xfe.py",
        b"\\xff\\xfe.py": "\\xff\\xfe.py",  # once printable, the same as the one before
        b" spaces .py": " spaces .py",
        b"*?[x].py": "*?[x].py",
        b"-rf.py": "-rf.py",
        "ü\u202e.py".encode(): "ü\u202e.py",
    }
    folder.mkdir(parents=True)
    for name in names:
        with open(os.fsencode(folder) + b"/" + name, "wb") as file:
            file.write(GOOD_TEXT + name)
    return [HostileFile("names", name, None) for name in names.values()]


def _out_of_reach(folder: Path) -> HostileFile:
    """A file whose path is longer than the system takes: unreadable to root too."""
    path = folder
    while 4050 - len(str(path)) > 250:
        path = path / ("d" * 200)
    path = path / ("e" * (4050 - len(str(path)) - 1))
    path.mkdir(parents=True)
    name = "x" * 97 + ".py"
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    finally:
        os.close(descriptor)
    return HostileFile("deep", f"{path.relative_to(folder)}/{name}", "readable")


def write_hostile_archives(folder: Path) -> None:
    """Archives for the `archives` source with the pattern `folder`/*; each also holds good.py but the bombs."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "unsafe.zip", "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the name that repeats
        for name in ("good.py", "/etc/absolute.py", "../../up.py", "a/../../b.py", "C:\\drive.py", "good.py"):
            archive.writestr(name, GOOD_TEXT)
    with zipfile.ZipFile(folder / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(40):
            archive.writestr(f"zeros{number}.py", bytes(1 << 20))
    whole = _tar_bytes()
    (folder / "whole.tar").write_bytes(whole)
    (folder / "cut.tar").write_bytes(whole[: whole.index(b"last.py") + 600])
    (folder / "cut.tar.gz").write_bytes(gzip.compress(whole, 0)[:-2000])
    with tarfile.open(folder / "bomb.tar.gz", "w:gz") as tar:
        info = tarfile.TarInfo("zeros.py")
        info.size = 64 << 20
        tar.addfile(info, io.BytesIO(bytes(64 << 20)))
    (folder / "bomb.py.bz2").write_bytes(bz2.compress(bytes(64 << 20)))
    (folder / "cut.zip").write_bytes((folder / "unsafe.zip").read_bytes()[:-40])
    (folder / "noise.zip").write_bytes(bytes(range(256)) * 8)
    (folder / "empty.tar.gz").write_bytes(b"")


def _tar_bytes() -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for name in ("good.py", "/etc/absolute.py", "../../up.py", "last.py"):
            info = tarfile.TarInfo(name)
            info.size = len(GOOD_TEXT)
            tar.addfile(info, io.BytesIO(GOOD_TEXT))
            for kind, special in (
                (tarfile.SYMTYPE, "symlink"),
                (tarfile.LNKTYPE, "hard"),
                (tarfile.FIFOTYPE, "fifo"),
            ):
                info = tarfile.TarInfo(f"{special}_{len(name)}")
                info.type, info.linkname = kind, "../../../etc/passwd"
                tar.addfile(info)
    return sink.getvalue()


def write_hostile_tables(folder: Path) -> None:
    """JSONL files with a good record first and last: broken lines, wrong types, lone surrogates, a cut gz."""
    folder.mkdir(parents=True, exist_ok=True)
    good = [
        json.dumps(
            {"content": GOOD_TEXT.decode() + str(number), "repository": "r", "path": f"{number}.py"}
        ).encode()
        for number in range(2)
    ]
    broken = [
        b'{"content": "cut',
        b"\xff\xfe not text",
        b"[" * 100_000,
        b'{"content": 5}',
        b'{"content": "x", "path": ["y"]}',
        b'"text"',
        b"null",
        b'{"content": "\\ud800"}',
        b"{}",
        b"",
        b'{"content": "' + b"x" * (2 << 20) + b'"}',
    ]
    data = b"\n".join((good[0], *broken, good[1])) + b"\n"
    (folder / "broken.jsonl").write_bytes(data)
    (folder / "cut.jsonl.gz").write_bytes(gzip.compress(data, 0)[:-1000])
