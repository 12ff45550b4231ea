"""Parquet: one file of code per row."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cluster.errors import UserError, first_line
from cluster.storage import fingerprint
from data_prep.documents import RawFile, Rejection
from data_prep.sources.config import ColumnsConfig, ParquetConfig
from data_prep.sources.files import SourceFile, find_files
from data_prep.sources.limits import ReadLimits
from data_prep.sources.listed import unreadable
from data_prep.sources.presets import column_mappings
from data_prep.sources.records import RecordReader
from data_prep.sources.units import Reader, WorkUnit, cut_runs, join_small

_BATCH_BYTES = 4 << 20
_MAX_BATCH_ROWS = 1024
# A part of a row group decodes all of it, at some 350 MB/s of text.
_PACKED_BYTES_PER_PART = 16 << 20
_MAX_PARTS = 16
_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RowGroup:
    """`first_row` counts in the file; `packed_bytes` are those of the columns that are read."""

    number: int
    first_row: int
    num_rows: int
    packed_bytes: int
    unpacked_bytes: int

    @property
    def batch_rows(self) -> int:
        mean_bytes = max(1, self.unpacked_bytes // max(1, self.num_rows))
        return max(1, min(_MAX_BATCH_ROWS, _BATCH_BYTES // mean_bytes))


def plan_parquet(config: ParquetConfig, source: str) -> list[WorkUnit]:
    """Runs of row groups; a very large row group is shared by parts that take every K-th batch of rows."""
    groups: list[list[WorkUnit]] = []
    mappings = column_mappings(config.preset, config.columns)
    failures = []
    files = find_files(config.urls)
    for number, file in enumerate(files):
        records = RecordReader(mappings, config.repository or file.label, config.exclude)
        readers: list[tuple[Reader, int]]
        try:
            readers = _readers(file, records)
        except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
            rejection = _damage(error)
            failures.append(f"{file.label}: {rejection.detail or rejection.rule}")
            readers = [(ParquetFailure(file, records, rejection), 0)]
        told = [[columns.model_dump() for columns in mappings], records.repository, config.exclude]
        units: list[WorkUnit] = []
        for part, (reader, num_bytes) in enumerate(readers):
            key = ["parquet", file.label, file.num_bytes, file.mark, told, part, len(readers)]
            units.append(
                WorkUnit(source, f"{number} {file.label} {part}", num_bytes, fingerprint(key), reader)
            )
        groups.append(units)
    if len(failures) == len(files):
        raise UserError(f"source {source}: no Parquet file of it can be read ({failures[0]}): check `urls`")
    return join_small(groups)


@dataclass(frozen=True, slots=True)
class ParquetFailure:
    """A file whose table of contents cannot be read."""

    file: SourceFile
    records: RecordReader
    rejection: Rejection

    def read(self, limits: ReadLimits) -> Iterator[RawFile]:
        location = f"{self.file.label}#end"
        yield self.records.rejected(location, self.rejection, self.file.num_bytes or 0)


@dataclass(frozen=True, slots=True)
class ParquetPart:
    """The batches of some row groups whose number is `part` modulo `num_parts`."""

    file: SourceFile
    records: RecordReader
    columns: tuple[str, ...]
    groups: tuple[RowGroup, ...]
    part: int = 0
    num_parts: int = 1

    def read(self, limits: ReadLimits) -> Iterator[RawFile]:
        for group in self.groups:
            row = group.first_row
            try:
                for number, batch in enumerate(self._batches(group)):
                    if number % self.num_parts == self.part:
                        yield from self._files(batch, row, limits)
                    row += batch.num_rows
            except (OSError, ValueError) as error:
                # Each part reads for itself: nobody else tells what this one could not see.
                place = f"{self.file.label}#{row}-" + (f" of part {self.part}" if self.part else "")
                rejection = _damage(error)
                detail = f"row group {group.number}: {rejection.detail}"
                yield self.records.rejected(place, Rejection(rejection.rule, float(row), detail))

    def _batches(self, group: RowGroup) -> Iterator[Any]:
        with _opened(self.file) as opened:
            yield from opened.iter_batches(
                group.batch_rows, row_groups=[group.number], columns=list(self.columns), use_threads=False
            )

    def _files(self, batch: Any, row: int, limits: ReadLimits) -> Iterator[RawFile]:
        try:
            records = batch.to_pylist()
        except UnicodeDecodeError:
            # One text that is not UTF-8 must not cost its neighbours.
            records = [_one_record(batch, position) for position in range(batch.num_rows)]
        for position, record in enumerate(records, row):
            location = f"{self.file.label}#{position}"
            if isinstance(record, Rejection):
                yield self.records.rejected(location, record)
            else:
                yield from self.records.files(record, location, position, limits)


def _one_record(batch: Any, position: int) -> Any:
    try:
        return batch.slice(position, 1).to_pylist()[0]
    except UnicodeDecodeError as error:
        return Rejection("decodable", None, first_line(error))


@contextmanager
def _opened(file: SourceFile) -> Iterator[Any]:
    """The pyarrow ParquetFile; it does not close what it was given."""
    import pyarrow.parquet as pq

    with file.open_whole() as source:
        yield pq.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False)


def _readers(file: SourceFile, records: RecordReader) -> list[tuple[Reader, int]]:
    with _opened(file) as opened:
        metadata = opened.metadata
        names = {metadata.schema.column(i).path.split(".")[0] for i in range(metadata.num_columns)}
        columns = _needed(names, records.mappings)
        groups = _row_groups(metadata, columns)
    readers: list[tuple[Reader, int]] = []
    large = [group for group in groups if group.packed_bytes > _PACKED_BYTES_PER_PART]
    small = [group for group in groups if group.packed_bytes <= _PACKED_BYTES_PER_PART]
    for run in cut_runs([group.packed_bytes for group in small]):
        part = tuple(small[run])
        readers.append((ParquetPart(file, records, columns, part), sum(g.packed_bytes for g in part)))
    for group in large:
        num_parts = min(_MAX_PARTS, math.ceil(group.packed_bytes / _PACKED_BYTES_PER_PART))
        readers += [
            (ParquetPart(file, records, columns, (group,), k, num_parts), group.packed_bytes // num_parts)
            for k in range(num_parts)
        ]
    return readers


def _needed(names: set[str], mappings: Sequence[ColumnsConfig]) -> tuple[str, ...]:
    """Top-level columns that a mapping asks for and the file has."""
    wanted = {name for columns in mappings for name in columns.model_dump().values() if name is not None}
    found = {name if name in names else name.split(".")[0] for name in wanted} & names
    contents = {columns.content.split(".")[0] for columns in mappings} | {c.content for c in mappings}
    contents |= {columns.files for columns in mappings if columns.files is not None}
    if not contents & names:
        raise _NoContent(f"no column {' or '.join(sorted(contents))} among {', '.join(sorted(names))}")
    return tuple(sorted(found))


def _row_groups(metadata: Any, columns: Sequence[str]) -> list[RowGroup]:
    groups, first_row = [], 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = [group.column(i) for i in range(group.num_columns)]
        chunks = [chunk for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns]
        packed = sum(chunk.total_compressed_size for chunk in chunks)
        unpacked = sum(chunk.total_uncompressed_size for chunk in chunks)
        groups.append(RowGroup(number, first_row, group.num_rows, packed, unpacked))
        first_row += group.num_rows
    return groups


class _NoContent(ValueError):
    """A table that holds no texts, as lists of identifiers do."""


def _damage(error: OSError | ValueError) -> Rejection:
    """What the system refused is `readable`; what Arrow could not make sense of is `truncated`."""
    if isinstance(error, OSError) and error.errno is not None:
        return unreadable(error)
    return Rejection("no_content" if isinstance(error, _NoContent) else "truncated", None, first_line(error))
