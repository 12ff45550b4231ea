"""The files a source offers, in a fixed order, and which of them fit the budget."""

import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase

from cluster.errors import UserError
from cluster.storage import fingerprint
from data_prep.config import DirectoryConfig, InstalledPythonConfig
from data_prep.documents import SourceFile
from data_prep.ordering import keyed_hash
from data_prep.sources.directory import list_directory
from data_prep.sources.installed_python import list_installed_python

AnySourceConfig = InstalledPythonConfig | DirectoryConfig


def list_files(config: AnySourceConfig) -> list[SourceFile]:
    """Every file the source offers, ordered by (repository, path), excluded ones left out.

    Raises UserError when the corpus does not exist or offers no file.
    """
    if isinstance(config, DirectoryConfig):
        files = list_directory(config)
        where = f"{config.path} (suffixes {', '.join(config.suffixes)})"
    else:
        files = list_installed_python()
        where = "the installed Python packages"
    kept = [file for file in files if not _is_excluded(file, config.exclude)]
    if not kept:
        raise UserError(
            f"no usable file: found {len(files)} files in {where}, {len(files)} excluded by `exclude`; "
            "point the source at a corpus"
        )
    return sorted(kept, key=lambda file: (file.repository, file.path))


def input_signature(config: AnySourceConfig) -> str:
    """Changes when a listed file is added, removed, resized or touched. Reads no file's content.

    Where there are Python files it changes with the interpreter's version too, which decides what parses.
    """
    return signature_of(list_files(config))


def signature_of(files: Sequence[SourceFile]) -> str:
    """The signature of files already listed."""
    python = list(sys.version_info[:2]) if any(file.language == "Python" for file in files) else None
    return fingerprint([python, [(f.repository, f.path, f.num_bytes, f.mtime_ns) for f in files]])


def within_budget(files: list[SourceFile], max_total_bytes: int | None) -> set[str]:
    """The repositories to read: in keyed-hash order, each that still fits into `max_total_bytes`."""
    num_bytes_of: dict[str, int] = {}
    for file in files:
        num_bytes_of[file.repository] = num_bytes_of.get(file.repository, 0) + file.num_bytes
    if max_total_bytes is None:
        return set(num_bytes_of)
    chosen: set[str] = set()
    left_bytes = max_total_bytes
    for name in sorted(num_bytes_of, key=lambda name: keyed_hash(0, "budget", name)):
        if num_bytes_of[name] <= left_bytes:
            chosen.add(name)
            left_bytes -= num_bytes_of[name]
    return chosen


def _is_excluded(file: SourceFile, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(file.repository, p) or fnmatchcase(file.path, p) for p in patterns)
