"""Parquet files: one file of code per row."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError, first_line
from cluster.storage import fingerprint
from data_prep.documents import RawFile, Rejection
from data_prep.sources.columns import column_mappings, content_columns, no_content_message
from data_prep.sources.config import ColumnsConfig, ParquetConfig
from data_prep.sources.files import SourceFile, find_files
from data_prep.sources.limits import ReadLimits
from data_prep.sources.listed import unreadable
from data_prep.sources.parquet_rows import (
    check_footer,
    conversion_errors,
    group_batches,
    open_parquet,
    records,
    row_bytes,
    row_slices,
)
from data_prep.sources.records import RecordReader, TableFailure
from data_prep.sources.units import Reader, WorkUnit, cut_runs, join_small

BATCH_BYTES = 4 << 20
_MAX_BATCH_ROWS = 256
# Each part of a row group decodes all of it, at some 350 MB/s of text.
PACKED_BYTES_PER_PART = 16 << 20
_MAX_PARTS = 16
# Of longer rows only the length is recorded.
MAX_ROW_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group. `first_row` counts from the file's start; bytes are those of the columns read, by the footer."""

    number: int
    first_row: int
    num_rows: int
    packed_bytes: int
    unpacked_bytes: int

    @property
    def batch_rows(self) -> int:
        mean_bytes = max(1, self.unpacked_bytes // max(1, self.num_rows))
        return max(1, min(_MAX_BATCH_ROWS, BATCH_BYTES // mean_bytes))

    def refuse_bomb(self, limits: ReadLimits, num_bytes: int) -> None:
        """Raise OversizedRowGroupError if this row group may not unpack to `num_bytes` bytes."""
        if not limits.allows_unpacked(self.packed_bytes, num_bytes):
            raise OversizedRowGroupError(
                f"{self.packed_bytes} bytes that unpack to {num_bytes:,}, more than allowed"
            )


def plan_parquet(config: ParquetConfig, source: str) -> list[WorkUnit]:
    """Return units of work: runs of row groups, and parts of very large ones that read every K-th batch of rows.

    UserError if no file can be read, or all are without rows.
    """
    groups: list[list[WorkUnit]] = []
    mappings = column_mappings(config.preset, config.columns)
    failures = []
    files = find_files(config.urls)
    for number, file in enumerate(files):
        records = RecordReader(mappings, config.repository or file.label, config.exclude)
        readers, failure = _readers_or_failure(file, records, config.columns)
        if failure is not None:
            failures.append(f"{file.label}: {failure}")
        settings = [[columns.model_dump() for columns in mappings], records.repository, config.exclude]
        units: list[WorkUnit] = []
        for part, (reader, num_bytes) in enumerate(readers):
            key = ["parquet", file.label, file.version, settings, part, len(readers)]
            units.append(
                WorkUnit(source, f"{number} {file.label} {part}", num_bytes, fingerprint(key), reader)
            )
        groups.append(units)
    if len(failures) == len(files):
        raise UserError(
            f"source {source}: none of its Parquet files can be read ({failures[0]}): check `urls`"
        )
    if not any(groups):
        raise UserError(f"source {source}: its Parquet files have no rows: check `urls`")
    return join_small(groups)


@dataclass(frozen=True, slots=True)
class ParquetPart:
    """The reader of those batches of some row groups whose number is `part` modulo `num_parts`."""

    file: SourceFile
    records: RecordReader
    columns: tuple[str, ...]
    groups: tuple[RowGroup, ...]
    part: int = 0
    num_parts: int = 1

    def read(self, limits: ReadLimits) -> Iterator[RawFile]:
        for group in self.groups:
            row, num_bytes = group.first_row, 0
            try:
                group.refuse_bomb(limits, group.unpacked_bytes)
                batches = group_batches(
                    self.file, group.number, self.columns, group.batch_rows, group.unpacked_bytes
                )
                for number, batch in enumerate(batches):
                    sizes = row_bytes(batch)
                    num_bytes += int(sizes.sum())
                    group.refuse_bomb(limits, num_bytes)
                    if number % self.num_parts == self.part:
                        yield from self._files(batch, sizes, row, limits)
                    row += batch.num_rows
            except _reading_errors() as error:
                # Each part reads the row group separately, so no other part reports what this one could not read.
                place = f"{self.file.label}#{row}-" + (f" of part {self.part}" if self.part else "")
                rejection = _damage(error)
                detail = f"row group {group.number}: {rejection.detail}"
                yield self.records.rejection_row(place, Rejection(rejection.rule, float(row), detail))

    def _files(
        self, batch: Any, sizes: NDArray[np.int64], first_row: int, limits: ReadLimits
    ) -> Iterator[RawFile]:
        max_row_bytes = max(MAX_ROW_BYTES, limits.max_record_bytes)
        for run in row_slices(sizes, max_row_bytes):
            row, num_bytes = first_row + run.start, int(sizes[run].sum())
            if num_bytes > max_row_bytes:
                rejection = Rejection("file_size", float(num_bytes))
                yield self.records.rejection_row(f"{self.file.label}#{row}", rejection, num_bytes)
                continue
            for position, record in enumerate(records(batch.slice(run.start, run.stop - run.start)), row):
                location = f"{self.file.label}#{position}"
                if isinstance(record, Rejection):
                    yield self.records.rejection_row(location, replace(record, value=float(position)))
                else:
                    yield from self.records.files(record, location, position, limits)


def _readers_or_failure(
    file: SourceFile, records: RecordReader, columns: ColumnsConfig | None
) -> tuple[list[tuple[Reader, int]], str | None]:
    """Return the file's readers with their bytes, and None; or one reader that reports a failure, and the reason."""
    rejection = file.rejection
    if rejection is None:
        try:
            return _readers(file, records, columns), None
        except _reading_errors() as error:
            rejection = _damage(error)
    failure = TableFailure(file.label, records, rejection, file.num_bytes or 0)
    return [(failure, 0)], rejection.detail or rejection.rule


def _readers(
    file: SourceFile, records: RecordReader, named_columns: ColumnsConfig | None
) -> list[tuple[Reader, int]]:
    with open_parquet(file) as opened:
        metadata = opened.metadata
        names = {metadata.schema.column(i).path.split(".")[0] for i in range(metadata.num_columns)}
        columns = _needed(names, records.mappings)
        _refuse_missing(names, named_columns)
        paths = [metadata.schema.column(leaf).path for leaf in range(metadata.num_columns)]
        leaves = [leaf for leaf, path in enumerate(paths) if path.split(".")[0] in columns]
        check_footer(metadata, leaves)
        groups = _row_groups(metadata, leaves)
    readers: list[tuple[Reader, int]] = []
    large = [group for group in groups if group.packed_bytes > PACKED_BYTES_PER_PART]
    small = [group for group in groups if group.packed_bytes <= PACKED_BYTES_PER_PART]
    for run in cut_runs([group.packed_bytes for group in small]):
        part = tuple(small[run])
        readers.append((ParquetPart(file, records, columns, part), sum(g.packed_bytes for g in part)))
    for group in large:
        num_parts = min(_MAX_PARTS, math.ceil(group.packed_bytes / PACKED_BYTES_PER_PART))
        readers += [
            (ParquetPart(file, records, columns, (group,), k, num_parts), group.packed_bytes // num_parts)
            for k in range(num_parts)
        ]
    return readers


def _needed(names: set[str], mappings: Sequence[ColumnsConfig]) -> tuple[str, ...]:
    """Return the top-level columns that a mapping names and the file has."""
    wanted = {name for columns in mappings for name in columns.model_dump().values() if name is not None}
    found = {name if name in names else name.split(".")[0] for name in wanted} & names
    contents = content_columns(mappings)
    if not (contents | {name.split(".")[0] for name in contents}) & names:
        raise _NoContent(no_content_message(contents, names))
    return tuple(sorted(found))


def _refuse_missing(names: set[str], columns: ColumnsConfig | None) -> None:
    """Raise _NoContent if a column that the user names is missing; those of a preset are optional."""
    if columns is None or columns.files is not None:
        return
    wanted = sorted(name for name in columns.model_dump().values() if name is not None)
    missing = [name for name in wanted if name not in names and name.split(".")[0] not in names]
    if missing:
        raise _NoContent(f"no column {' and '.join(missing)} among {', '.join(sorted(names))}")


def _row_groups(metadata: Any, leaves: Sequence[int]) -> list[RowGroup]:
    groups, first_row = [], 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if not group.num_rows:
            continue
        chunks = [group.column(leaf) for leaf in leaves]
        packed = sum(chunk.total_compressed_size for chunk in chunks)
        # Nulls take no bytes in the file, but 8 bytes each in memory.
        unpacked = sum(max(0, c.total_uncompressed_size) + 8 * max(0, c.num_values) for c in chunks)
        groups.append(RowGroup(number, first_row, group.num_rows, packed, unpacked))
        first_row += group.num_rows
    return groups


class OversizedRowGroupError(ValueError):
    """A row group unpacks to more than the limits allow."""


class _NoContent(ValueError):
    """A table has no column of code, as tables of identifiers."""


def _reading_errors() -> tuple[type[Exception], ...]:
    return (OSError, MemoryError, *conversion_errors())


def _damage(error: Exception) -> Rejection:
    """Return the rejection for an error: `readable` for one of the system, `truncated` for most of Arrow's."""
    if isinstance(error, OSError) and error.errno is not None:
        return unreadable(error)
    rule = "truncated"
    if isinstance(error, _NoContent):
        rule = "no_content"
    elif isinstance(error, OversizedRowGroupError | MemoryError):
        rule = "bomb"
    elif isinstance(error, NotImplementedError):
        rule = "unsupported"
    return Rejection(rule, None, first_line(error))
