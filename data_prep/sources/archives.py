"""Archives: the plan of which reader reads which part of which file."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from cluster.errors import UserError
from cluster.storage import fingerprint
from data_prep.documents import RawFile, Rejection
from data_prep.sources.archive_names import TAR_SUFFIXES, ZIP_SUFFIXES, MemberNames, repository_of, stem_of
from data_prep.sources.config import ArchivesConfig
from data_prep.sources.decompress import CODECS, Codec, StreamPart, stream_parts
from data_prep.sources.files import SourceFile, find_files
from data_prep.sources.limits import ReadLimits
from data_prep.sources.listed import unreadable
from data_prep.sources.tar_archive import CompressedText, TarReader
from data_prep.sources.units import UNIT_BYTES, Reader, WorkUnit, join_small
from data_prep.sources.zip_archive import NoDirectory, ZipReader, ZipScan, zip_members, zip_runs

_TAR_CODECS: dict[str, Codec | None] = {
    ".tar": None, ".tar.gz": "gz", ".tgz": "gz", ".crate": "gz", ".tar.bz2": "bz2", ".tbz2": "bz2",
    ".tar.xz": "xz", ".txz": "xz", ".tar.zst": "zst", ".tzst": "zst",
}  # fmt: skip
# Finding a plain tar's members takes one read per member, so parts may be small; but each part finds all members.
TAR_CHUNK_BYTES = 4 << 20
_MANY_TAR_PARTS = 8
_TAR_BYTES_PER_PART = 64 << 20
_MAX_TAR_PARTS = 64


def plan_archives(config: ArchivesConfig, source: str) -> list[WorkUnit]:
    """Return units of work: runs of a zip's members, and parts of tars. UserError for an unknown suffix."""
    groups: list[list[WorkUnit]] = []
    for number, file in enumerate(find_files(config.urls)):
        repository = config.repository or repository_of(file.basename)
        names = MemberNames(file.label, repository, stem_of(file.basename), config.exclude)
        readers = _readers(file, names)
        units: list[WorkUnit] = []
        for part, (reader, num_bytes) in enumerate(readers):
            key = ["archive", asdict(names), file.version, part, len(readers)]
            units.append(
                WorkUnit(source, f"{number} {file.label} {part}", num_bytes, fingerprint(key), reader)
            )
        groups.append(units)
    readers_of_all = [unit.reader for units in groups for unit in units]
    if not readers_of_all:
        raise UserError(f"source {source}: its archives are empty: check `urls`")
    if all(isinstance(reader, ArchiveFailure) for reader in readers_of_all):
        raise UserError(
            f"source {source}: none of its archives can be read: check `urls` and your permissions"
        )
    return join_small(groups)


@dataclass(frozen=True, slots=True)
class ArchiveFailure:
    """The reader of an archive that must not, or cannot, be opened: it yields one row with the reason."""

    names: MemberNames
    rejection: Rejection

    def read(self, limits: ReadLimits) -> Iterator[RawFile]:
        yield self.names.end_row(self.rejection)


def _readers(file: SourceFile, names: MemberNames) -> list[tuple[Reader, int]]:
    if file.rejection is not None:
        return [(ArchiveFailure(names, file.rejection), 0)]
    lowered = file.basename.lower()
    size_bytes = file.num_bytes or 0
    if lowered.endswith(ZIP_SUFFIXES):
        return _zip_readers(file, names)
    for suffix in TAR_SUFFIXES:
        if lowered.endswith(suffix):
            parts = _tar_parts(file) if _TAR_CODECS[suffix] is None else stream_parts(file.num_bytes)
            return [
                (TarReader(file, _TAR_CODECS[suffix], names, part), size_bytes // len(parts))
                for part in parts
            ]
    for ending, codec in CODECS.items():
        if lowered.endswith(ending):
            return [(CompressedText(file, codec, names), size_bytes)]
    raise UserError(
        f"source {file.location}: its suffix is not that of a supported archive "
        f"({', '.join((*ZIP_SUFFIXES, *TAR_SUFFIXES, *CODECS))}): rename it or remove it from `urls`"
    )


def _zip_readers(file: SourceFile, names: MemberNames) -> list[tuple[Reader, int]]:
    try:
        runs = list(zip_runs(zip_members(file)))
    except NoDirectory as error:
        return [(ZipScan(file, names, str(error)), file.num_bytes or 0)]
    except OSError as error:
        return [(ArchiveFailure(names, unreadable(error)), 0)]
    return [(ZipReader(file, names, run), sum(member.packed_bytes for member in run)) for run in runs]


def _tar_parts(file: SourceFile) -> list[StreamPart]:
    size_bytes = file.num_bytes or 0
    if not file.seekable or not size_bytes:
        return stream_parts(file.num_bytes)
    few = min(_MANY_TAR_PARTS, math.ceil(size_bytes / UNIT_BYTES))
    num_parts = min(_MAX_TAR_PARTS, max(few, math.ceil(size_bytes / _TAR_BYTES_PER_PART)))
    return [StreamPart(number, num_parts, TAR_CHUNK_BYTES) for number in range(num_parts)]
