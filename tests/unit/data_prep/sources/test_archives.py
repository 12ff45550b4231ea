"""Zip and tar archives and single compressed texts."""

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import UserError
from data_prep.documents import RawFile
from data_prep.sources import archives as archives_module
from data_prep.sources import units as units_module
from data_prep.sources.archive_names import MemberNames, is_unsafe, repository_of
from data_prep.sources.config import ArchivesConfig
from data_prep.sources.decompress import ByteStream, StreamEnd, StreamPart
from data_prep.sources.files import SourceFile
from data_prep.sources.limits import ReadLimits
from data_prep.sources.plan import plan_units
from data_prep.sources.tar_archive import TarReader, tar_members
from tests.hostile_corpus import GOOD_TEXT, write_hostile_archives
from tests.unit.data_prep.sources.reading import read_all, rule_of, rules, texts

_COMPRESS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.compress}


def _config(*paths: Path) -> ArchivesConfig:
    return ArchivesConfig(urls=tuple(str(path) for path in paths))


def _tar(files: dict[str, bytes], tar_format: int = tarfile.PAX_FORMAT) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tar_format) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return sink.getvalue()


def _zip(path: Path, files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def _many(num: int) -> dict[str, bytes]:
    return {f"d{n % 5}/f{n}.py": f"x = {n}\n".encode() * (n % 90) for n in range(num)}


@pytest.mark.parametrize(
    ("name", "repository"),
    [
        ("lib-1.0.tar.gz", "lib"),
        ("h2-4.1.0.zip", "h2"),
        ("foo-2d-1.0rc1.tgz", "foo-2d"),
        ("base64-js-1.5.1.tgz", "base64-js"),
        ("foo-2.0.0-beta.1.tar.xz", "foo"),
        ("typing_extensions-4.12.2-py3-none-any.whl", "typing_extensions"),
        ("jna-platform-5.13.0.jar", "jna-platform"),
        ("linux-v6.1.tar.zst", "linux"),
        ("corpus.tar", "corpus"),
        ("notes.txt.gz", "notes.txt"),
        ("1.0.zip", "1.0"),
    ],
)
def test_repository_is_the_name_without_version(name: str, repository: str) -> None:
    assert repository_of(name) == repository


def test_own_leading_folders_are_removed(tmp_path: Path) -> None:
    source = _tar({"my_lib-1.0/a.py": b"a", "my_lib-1.0/b/c.py": b"c"})
    (tmp_path / "my.lib-1.0.tar.gz").write_bytes(gzip.compress(source))
    (tmp_path / "left-pad-1.3.0.tgz").write_bytes(
        gzip.compress(_tar({"package/index.js": b"i", "other/x.js": b"x"}))
    )
    _zip(tmp_path / "repo-main.zip", {"repo-main/src/a.py": b"a", "package/x.py": b"x"})
    found = texts(read_all(_config(tmp_path / "*")))
    assert set(found) == {
        ("my.lib", "a.py"),
        ("my.lib", "b/c.py"),
        ("left-pad", "index.js"),
        ("left-pad", "other/x.js"),
        ("repo-main", "src/a.py"),
        ("repo-main", "package/x.py"),
    }


def test_the_repository_and_what_is_excluded_are_configurable(tmp_path: Path) -> None:
    path = _zip(tmp_path / "x.zip", {"a/b/c.py": b"1", "d.py": b"2"})
    config = ArchivesConfig(urls=(str(path),), repository="mine", exclude=("d.*",))
    assert {(f.repository, f.path, rule_of(f)) for f in read_all(config)} == {
        ("mine", "a/b/c.py", None),
        ("mine", "d.py", "excluded"),
    }


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_zip_methods(tmp_path: Path, method: int) -> None:
    files = _many(60)
    path = _zip(tmp_path / "x.zip", files, method)
    assert {path: data for (_, path), data in texts(read_all(_config(path))).items()} == files


def test_methods_that_are_not_read_are_rows(tmp_path: Path) -> None:
    path = _zip(tmp_path / "x.zip", {"a.py": GOOD_TEXT}, zipfile.ZIP_LZMA)
    (file,) = read_all(_config(path))
    assert file.rejection is not None
    assert (file.rejection.rule, file.rejection.detail) == ("unsupported", "zip method 14")


def test_zip_members_are_cut_into_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _zip(tmp_path / "x.zip", _many(200))
    complete = read_all(_config(path))
    monkeypatch.setattr(units_module, "UNIT_BYTES", 1000)
    units = plan_units(_config(path))
    assert len(units) == 3
    assert len({unit.name for unit in units}) == len({unit.signature for unit in units}) == len(units)
    assert read_all(_config(path)) == complete


@pytest.mark.parametrize("codec", [None, *_COMPRESS])
@pytest.mark.parametrize("tar_format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_tars_of_every_format_and_compression(tmp_path: Path, codec: str | None, tar_format: int) -> None:
    files = _many(40) | {"n" * 90 + "/" + "m" * 90 + ".py": b"long"}
    if tar_format != tarfile.USTAR_FORMAT:
        files |= {"ü" * 200 + ".py": b"longer", "d/" * 300 + "x.py": b"deep"}
    data = _tar(files, tar_format)
    path = tmp_path / ("x.tar" + (f".{codec}" if codec else ""))
    path.write_bytes(_COMPRESS[codec](data) if codec else data)
    assert {path: data for (_, path), data in texts(read_all(_config(path))).items()} == files


@pytest.mark.parametrize("codec", [None, "gz", "zst"])
def test_parts_of_a_tar_have_every_member_once(tmp_path: Path, codec: str | None) -> None:
    data = _tar(_many(100))
    path = tmp_path / "x.tar"
    path.write_bytes(_COMPRESS[codec](data) if codec else data)
    file = SourceFile(str(path), path.name, path.stat().st_size, "")
    names = MemberNames("x.tar", "x", "x", ())

    def read(part: StreamPart) -> list[RawFile]:
        return list(TarReader(file, codec, names, part).read(ReadLimits()))

    complete = read(StreamPart())
    assert len(complete) == 100
    for num_parts in (2, 5):
        parts = [read(StreamPart(k, num_parts, chunk_bytes=4096)) for k in range(num_parts)]
        assert all(parts)
        assert sorted((f for part in parts for f in part), key=_offset) == complete


def _offset(file: RawFile) -> int:
    return int(file.location.rpartition("@")[2])


def test_a_plain_tar_is_shared_by_small_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.tar").write_bytes(_tar(_many(100)))
    complete = read_all(_config(tmp_path / "x.tar"))
    monkeypatch.setattr(archives_module, "UNIT_BYTES", 20_000)
    monkeypatch.setattr(archives_module, "TAR_CHUNK_BYTES", 2048)
    assert len(plan_units(_config(tmp_path / "x.tar"))) == 6
    assert sorted(read_all(_config(tmp_path / "x.tar")), key=_offset) == complete


def test_every_member_of_malicious_archives_is_a_row_and_nothing_is_written(tmp_path: Path) -> None:
    write_hostile_archives(tmp_path / "in")
    before = sorted(tmp_path.rglob("*"))
    found: dict[str, Counter[str | None]] = {}
    for file in read_all(_config(tmp_path / "in" / "*")):
        found.setdefault(file.location.partition("!")[0], Counter())[rule_of(file)] += 1
    assert sorted(tmp_path.rglob("*")) == before
    specials = {"link": 8, "not_regular": 4}
    assert found == {
        "unsafe.zip": {None: 2, "unsafe_path": 4},
        "bomb.zip": {None: 16, "bomb": 24},
        "whole.tar": {None: 2, "unsafe_path": 2, **specials},
        "cut.tar": {None: 1, "unsafe_path": 2, "link": 6, "not_regular": 3, "truncated": 1},
        "cut.tar.gz": found["cut.tar.gz"],
        "bomb.tar.gz": {"file_size": 1, "bomb": 1},
        "bomb.py.bz2": {"file_size": 1},
        "cut.zip": {None: 2, "unsafe_path": 4, "truncated": 1},
        "noise.zip": {"truncated": 1},
        "empty.tar.gz": {"truncated": 1},
    }
    assert found["cut.tar.gz"]["truncated"] == 1


@pytest.mark.parametrize("name", ["/a", "\\a", "../a", "a/../b", "a\\..\\b", "C:x", "c:\\x", "a\0b", ""])
def test_unsafe_names(name: str) -> None:
    assert is_unsafe(name)
    assert not is_unsafe("a..b/..c/d..")


def test_unsafe_names_are_printable_rows(tmp_path: Path) -> None:
    path = _zip(tmp_path / "x.zip", {"aXb.py": GOOD_TEXT})
    path.write_bytes(path.read_bytes().replace(b"aXb", b"a\0b"))
    (file,) = read_all(_config(path))
    assert (file.path, rule_of(file)) == ("a\\x00b.py", "unsafe_path")


@pytest.mark.parametrize("kind", ["zip", "cut.zip", "tar", "tar.gz"])
def test_licence_files_are_read_whatever_the_size_limits(tmp_path: Path, kind: str) -> None:
    files = {
        "LICENSE": b"x" * 100,
        "a.py": b"y" * 100,
        "b/COPYING": b"no",
        "b/LICENSE.txt": b"z",
        "c.py": b"ccc",
    }
    path = tmp_path / f"lib.{kind}"
    if "zip" in kind:
        _zip(path, files)
    else:
        path.write_bytes(gzip.compress(_tar(files)) if kind.endswith("gz") else _tar(files))
    if kind == "cut.zip":
        path.write_bytes(path.read_bytes()[:-30])
    config = ArchivesConfig(urls=(str(path),), exclude=("*.txt",))
    found = read_all(config, ReadLimits(min_file_bytes=3, max_file_bytes=10))
    assert {(file.path, rule_of(file), file.data) for file in found if rule_of(file) != "truncated"} == {
        ("LICENSE", "file_size", b"x" * 100),
        ("a.py", "file_size", None),
        ("b/COPYING", "file_size", b"no"),
        ("b/LICENSE.txt", "excluded", None),
        ("c.py", None, b"ccc"),
    }


def test_encrypted_and_linked_members(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("secret.py", GOOD_TEXT)
        info = zipfile.ZipInfo("link.py")
        info.create_system, info.external_attr = 3, 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    data = bytearray(path.read_bytes())
    for magic, flags in ((b"PK\1\2", 8), (b"PK\3\4", 6)):
        data[data.index(magic) + flags] |= 1
    path.write_bytes(data)
    assert rules(read_all(_config(path))) == {"secret.py": "encrypted", "link.py": "link"}


def test_a_member_larger_than_it_claims_is_a_bomb(tmp_path: Path) -> None:
    path = _zip(tmp_path / "x.zip", {"a.py": bytes(100_000)})
    data = bytearray(path.read_bytes())
    struct.pack_into("<L", data, data.index(b"PK\1\2") + 24, 10)
    path.write_bytes(data)
    (file,) = read_all(_config(path))
    assert (rule_of(file), file.rejection and file.rejection.value) == ("bomb", 11.0)


def test_a_damaged_member_does_not_affect_others(tmp_path: Path) -> None:
    path = _zip(
        tmp_path / "x.zip", {"a.py": b"a" * 50, "b.py": b"b" * 50, "c.py": b"c" * 50}, zipfile.ZIP_STORED
    )
    path.write_bytes(path.read_bytes().replace(b"b" * 50, b"b" * 49 + b"x"))
    assert rules(read_all(_config(path))) == {"a.py": None, "b.py": "truncated", "c.py": None}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2000), st.booleans())
def test_wherever_a_zip_is_cut_complete_members_are_kept(cut: int, streamed: bool) -> None:
    import tempfile

    sink: io.BytesIO | _Unseekable = _Unseekable() if streamed else io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(8):
            archive.writestr(f"{number}.py", GOOD_TEXT * number)
    data = sink.getvalue()
    kept = data[: max(0, len(data) - 1 - cut)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.zip"
        path.write_bytes(kept)
        files = read_all(_config(path))
    assert rule_of(files[-1]) == "truncated"
    assert [f.data for f in files[:-1]] == [GOOD_TEXT * number for number in range(len(files) - 1)]
    if len(kept) > data.index(b"PK\1\2") + 4:
        assert len(files) == 9


class _Unseekable(io.BytesIO):
    """An unseekable file, for which zipfile writes lengths after the members."""

    def seek(self, *_: int) -> int:
        raise OSError("no seeking")

    def tell(self) -> int:
        raise OSError("not seekable")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 6000))
def test_wherever_a_tar_is_cut_complete_members_are_kept(num_bytes: int) -> None:
    data = _tar({f"{n}.py": GOOD_TEXT * n for n in range(6)})
    seen, end = _members(data[:num_bytes])
    assert "ends" in end
    assert all(body == (GOOD_TEXT * n)[: len(body)] for n, body in enumerate(seen))


def _members(data: bytes) -> tuple[list[bytes], str]:
    """Return the members' bytes and the StreamEnd that ended them; no other error may be raised."""
    stream = ByteStream(iter([data] if data else []))
    seen = []
    try:
        for member in tar_members(stream):
            seen.append(stream.take(member.num_bytes))
    except StreamEnd as end:
        return seen, f"{end.rule}: {end.reason}"
    return seen, ""


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damaged_tar_headers_never_raise_anything_else(data: st.DataObject) -> None:
    complete = bytearray(
        _tar({"ü" * 120 + ".py": GOOD_TEXT, "b.py": GOOD_TEXT}, data.draw(st.sampled_from([1, 2])))
    )
    for _ in range(data.draw(st.integers(1, 4))):
        complete[data.draw(st.integers(0, len(complete) - 1))] = data.draw(st.integers(0, 255))
    seen, end = _members(bytes(complete))
    assert len(seen) == 2 or end.startswith("truncated: ")


def test_a_pax_header_that_claims_gigabytes_is_not_read() -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 8 << 30
    stream = ByteStream(iter([info.tobuf(tarfile.GNU_FORMAT), bytes(1024)]))
    with pytest.raises(StreamEnd, match="a header claims 8589934592 bytes"):
        next(tar_members(stream))


@pytest.mark.parametrize(
    "body", [b"nothing", b"5", b"0 a=b\n", b"-9 a=b\n", b"99 a=b\n", b"x a=b\n", b" a=b\n", b"2 \n"]
)
def test_damaged_pax_headers_end_the_tar(body: bytes) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, len(body)
    stream = ByteStream(iter([info.tobuf(tarfile.GNU_FORMAT), body.ljust(512, b"\0"), bytes(1024)]))
    with pytest.raises(StreamEnd, match="a pax header is damaged"):
        next(tar_members(stream))


def test_single_compressed_texts(tmp_path: Path) -> None:
    for codec, compress in _COMPRESS.items():
        (tmp_path / f"x.py.{codec}").write_bytes(compress(GOOD_TEXT))
    assert texts(read_all(_config(tmp_path / "*"))) == {("x.py", "x.py"): GOOD_TEXT}


def test_archives_of_one_name_in_two_folders_are_distinguished(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        _zip(tmp_path / folder / "x.zip", {"f.py": folder.encode()})
    assert [(f.location, f.data) for f in read_all(_config(tmp_path / "*" / "x.zip"))] == [
        ("a/x.zip!f.py@0", b"a"),
        ("b/x.zip!f.py@0", b"b"),
    ]


def test_unknown_suffixes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.rar").write_bytes(b"Rar!")
    with pytest.raises(UserError, match=r"x\.rar: its suffix is not that of a supported archive"):
        plan_units(_config(tmp_path / "x.rar"))


def test_small_archives_share_a_unit_and_large_ones_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        _zip(tmp_path / f"a{number}.zip", {"f.py": b"x" * 100}, zipfile.ZIP_STORED)
    _zip(tmp_path / "a4.zip", {"f.py": b"x" * 900, "g.py": b"x" * 900}, zipfile.ZIP_STORED)
    (unit,) = plan_units(_config(tmp_path / "*"))
    complete = read_all(_config(tmp_path / "*"))
    assert [file.repository for file in complete] == [f"a{n}" for n in (0, 1, 2, 3, 4, 4, 5, 6, 7, 8)]
    monkeypatch.setattr(units_module, "UNIT_BYTES", 250)
    units = plan_units(_config(tmp_path / "*"))
    assert [unit.num_bytes for unit in units] == [200, 200, 900, 900, 200, 200]
    assert len({unit.name for unit in units}) == len({unit.signature for unit in units}) == 6
    assert read_all(_config(tmp_path / "*")) == complete
    _zip(tmp_path / "a8.zip", {"f.py": b"y" * 101}, zipfile.ZIP_STORED)
    monkeypatch.undo()
    assert plan_units(_config(tmp_path / "*"))[0].signature != unit.signature
