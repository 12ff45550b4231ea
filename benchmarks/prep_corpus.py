"""Gather a corpus of real source files in many languages from this machine: the data of `make bench-prep`.

    python -m benchmarks.prep_corpus FOLDER [--max-mb 150] [--copies 4] [ROOT ...]

Default roots: the standard library, this environment's site-packages, /usr/include, node's modules. A folder directly
below a root is a repository. Texts of 64 bytes to 1 MB in UTF-8, each content once, whole repositories in the order of
a hash of their names until the corpus is full: the same on every machine that has the same files.
With `--copies` also a larger corpus next to it, FOLDER-4: in each further copy the words are renamed.
"""

import argparse
import hashlib
import os
import re
import shutil
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SUFFIXES = frozenset(
    ".py .pyi .pyx .js .mjs .ts .jsx .tsx .css .html .json .yaml .yml .toml .md .rst .sh .h .hpp .hh .c .cc .cpp .cu"
    " .cuh .java .go .rs .rb .pl .lua .sql .cmake .f90 .proto".split()
)
_MIN_BYTES, _MAX_BYTES = 64, 1_000_000
_MAX_REPOSITORY_BYTES = 12_000_000
"""Limits the share of one package to less than a tenth of the corpus."""
_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_]{3,}")
_KEYWORDS = frozenset(
    b"False None True async await break class continue elif else except finally from global import lambda nonlocal pass"
    b" raise return while with yield self print function const this null true false typeof void default export extends"
    b" case switch throw catch instanceof struct static include define undef endif ifdef ifndef typedef union enum"
    b" unsigned signed char long double float short extern inline sizeof template typename namespace public private"
    b" protected virtual override operator using div span href http https html body head script".split()
)


@dataclass(frozen=True)
class SourceText:
    """A file of the corpus: its origin on this machine, and its repository and path in the corpus."""

    origin: Path
    repository: str
    path: str
    num_bytes: int


def default_roots() -> list[Path]:
    """Return the folders of this machine that contain third-party source code."""
    roots = [
        Path(sysconfig.get_path("stdlib")),
        Path(sysconfig.get_path("purelib")),
        Path("/usr/include"),
        Path("/usr/lib/node_modules"),
        Path("/usr/local/lib/node_modules"),
    ]
    return [root for root in roots if root.is_dir()]


def list_repositories(roots: Sequence[Path]) -> dict[str, list[tuple[Path, str]]]:
    """Return the source files of each repository, sorted, as (origin, path in the repository)."""
    found: dict[str, list[tuple[Path, str]]] = {}
    for number, root in enumerate(roots):
        for folder, folder_names, names in os.walk(root):
            folder_names[:] = sorted(
                n for n in folder_names if n not in ("__pycache__", "site-packages", ".git")
            )
            relative = Path(folder).relative_to(root)
            top = relative.parts[0] if relative.parts else "top"
            for name in sorted(names):
                origin = Path(folder, name)
                if origin.suffix in SUFFIXES and origin.is_file() and not origin.is_symlink():
                    path = "/".join((*relative.parts[1:], name))
                    found.setdefault(f"{number}-{top}", []).append((origin, path))
    return found


def usable_text(origin: Path) -> bytes | None:
    """Return the file's bytes if it is a UTF-8 text within the size limits, else None."""
    if not _MIN_BYTES <= origin.stat().st_size <= _MAX_BYTES:
        return None
    data = origin.read_bytes()
    try:
        data.decode()
    except UnicodeDecodeError:
        return None
    return None if b"\0" in data else data


def choose(roots: Sequence[Path], max_bytes: int) -> list[SourceText]:
    """Choose whole repositories until `max_bytes` is reached; return their files sorted by name."""
    repositories = list_repositories(roots)
    seen: set[bytes] = set()
    chosen: list[SourceText] = []
    total_bytes = 0
    for name in sorted(repositories, key=lambda name: hashlib.sha256(name.encode()).digest()):
        repository_bytes = 0
        for origin, path in repositories[name]:
            data = usable_text(origin)
            digest = hashlib.sha256(data or b"").digest()
            if data is None or digest in seen or repository_bytes > _MAX_REPOSITORY_BYTES:
                continue
            seen.add(digest)
            chosen.append(SourceText(origin, name, path, len(data)))
            repository_bytes += len(data)
        total_bytes += repository_bytes
        if total_bytes >= max_bytes:
            break
    return sorted(chosen, key=lambda file: (file.repository, file.path))


def place(files: Sequence[SourceText], folder: Path) -> None:
    """Copy the files to `folder`/repository/path."""
    for file in files:
        target = folder / file.repository / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.origin, target)


def salted(data: bytes, words: dict[bytes, bytes]) -> bytes:
    """Return `data` with the keys of `words` replaced by their values."""
    return _WORD.sub(lambda match: words.get(match.group(), match.group()), data)


def renaming(words: Sequence[bytes], salt: int) -> dict[bytes, bytes]:
    """Map every word to another of the same length, so that renamed texts are realistic but not near-duplicates."""
    by_length: dict[int, list[bytes]] = {}
    for word in words:
        by_length.setdefault(len(word), []).append(word)
    renamed: dict[bytes, bytes] = {}
    for same in by_length.values():
        shift = salt * 7919 % len(same)
        renamed |= dict(zip(same, same[shift:] + same[:shift], strict=True))
    return renamed


def multiply(folder: Path, target: Path, times: int) -> None:
    """Write `times` copies of the corpus in `folder` to `target`; all but the first have their words renamed."""
    texts = {path: path.read_bytes() for path in corpus_files(folder)}
    words = sorted({word for data in texts.values() for word in _WORD.findall(data)} - _KEYWORDS)
    for salt in range(times):
        names = renaming(words, salt)
        for path, data in texts.items():
            relative = path.relative_to(folder)
            copy = target / f"{salt}-{relative.parts[0]}" / Path(*relative.parts[1:])
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(salted(data, names) if salt else data)


def corpus_files(folder: Path) -> Iterator[Path]:
    """Return the files of a corpus folder in the order of their names."""
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def main() -> None:
    """Gather the corpus and print its statistics."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("roots", type=Path, nargs="*")
    parser.add_argument("--max-mb", type=float, default=150)
    parser.add_argument("--copies", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.folder.exists():
        sys.exit(f"{arguments.folder} is already there")
    files = choose(arguments.roots or default_roots(), int(arguments.max_mb * 1e6))
    place(files, arguments.folder)
    if arguments.copies > 1:
        copies = arguments.folder.with_name(f"{arguments.folder.name}-{arguments.copies}")
        multiply(arguments.folder, copies, arguments.copies)
    total_bytes = sum(file.num_bytes for file in files)
    shares: Counter[str] = Counter()
    for file in files:
        shares[file.origin.suffix] += file.num_bytes
    top = ", ".join(f"{suffix} {100 * size / total_bytes:.0f}%" for suffix, size in shares.most_common(8))
    print(
        f"corpus: {len(files):,} files of {len({f.repository for f in files})} repositories,"
        f" {total_bytes / 1e6:.1f} MB, mean {total_bytes / len(files) / 1e3:.1f} KB; by bytes {top}"
    )


if __name__ == "__main__":
    main()
