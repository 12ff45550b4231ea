"""A Parquet file's rows as records, in bounded memory; footers are checked before pyarrow sees them."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster.errors import first_line
from data_prep.documents import Rejection
from data_prep.sources.files import SourceFile


class DamagedFooter(ValueError):
    """A footer's entry for a column is invalid."""


def check_footer(metadata: Any, leaves: list[int]) -> None:
    """Raise DamagedFooter unless the entries of every row group's chunks of these leaf columns are valid.

    Accessing the metadata of a chunk that pyarrow's C++ finds damaged aborts the process; a reader of the same chunk
    raises instead. So each chunk gets a reader over a file whose reads fail: if the reader gets as far as reading, the
    chunk's entry is valid.
    """
    import pyarrow.parquet as pq

    with_rows = [n for n in range(metadata.num_row_groups) if metadata.row_group(n).num_rows]
    for group in with_rows:
        for leaf in leaves:
            unread = _Unread()
            opened = pq.ParquetFile(unread, metadata=metadata, pre_buffer=False, buffer_size=1 << 12)
            name = metadata.schema.column(leaf).path
            reason = "its entry is damaged"
            try:
                next(opened.iter_batches(1, row_groups=[group], columns=[name], use_threads=False), None)
            except Exception as error:  # any error before the first read means a damaged entry
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            if not unread.was_read:
                raise DamagedFooter(f"row group {group}, column {name}: {reason}")


class _Unread(io.RawIOBase):
    """A large file whose reads fail."""

    was_read = False
    _position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: 1 << 50}[whence] + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        self.was_read = True
        raise OSError("not to be read")


SLICE_BYTES = 4 << 20
# The most that repeated values of a dictionary may add to a batch.
_MAX_REPEATED_BYTES = 32 << 20
# Lists are read as dictionaries, because one row may repeat a value any number of times; but then all of a row
# group's values are in memory.
_MAX_LIST_GROUP_BYTES = 128 << 20
_BUFFER_BYTES = 1 << 20
_VALUE_BYTES = 8


@contextmanager
def open_parquet(file: SourceFile) -> Iterator[Any]:
    """Open a pyarrow ParquetFile while the block runs."""
    with file.open_seekable() as source:
        yield _parquet_file(source)


def group_batches(
    file: SourceFile, group: int, columns: Sequence[str], num_rows: int, group_bytes: int
) -> Iterator[Any]:
    """Yield the record batches of a row group, of at most `num_rows` rows; fewer if a dictionary's values are long.

    `group_bytes` are those that the footer claims. Raises what pyarrow raises.
    """
    with file.open_seekable() as source:
        plain = _parquet_file(source)
        texts, lists = _text_leaves(plain.metadata.schema, columns)
        if texts and num_rows * group_bytes > _MAX_REPEATED_BYTES:
            num_rows = min(num_rows, _max_dictionary_rows(source, plain, texts, group))
        opened = plain
        if lists and group_bytes <= _MAX_LIST_GROUP_BYTES:
            opened = _parquet_file(source, metadata=plain.metadata, read_dictionary=lists)
        yield from opened.iter_batches(num_rows, row_groups=[group], columns=list(columns), use_threads=False)


def row_bytes(batch: Any) -> NDArray[np.int64]:
    """Return the bytes of each row of a batch as text, int64 [num_rows]; other values count for 8 bytes or so."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        sizes += _value_bytes(column)
    return sizes


def row_slices(sizes: NDArray[np.int64], max_row_bytes: int) -> Iterator[slice]:
    """Yield slices of at most SLICE_BYTES or one row; each row of more than `max_row_bytes` is a slice of one."""
    start, num_bytes, is_long = 0, 0, False
    for position, size_bytes in enumerate(sizes.tolist()):
        was_long, is_long = is_long, size_bytes > max_row_bytes
        if position > start and (num_bytes + size_bytes > SLICE_BYTES or is_long or was_long):
            yield slice(start, position)
            start, num_bytes = position, 0
        num_bytes += size_bytes
    if start < len(sizes):
        yield slice(start, len(sizes))


def records(batch: Any) -> list[Any]:
    """Return a record per row, or a Rejection (`decodable`, `broken_record`) if a value cannot be converted."""
    try:
        return list(batch.to_pylist())
    except conversion_errors():
        # Convert row by row, so that one bad value does not drop the others.
        return [_record(batch.slice(position, 1)) for position in range(batch.num_rows)]


def conversion_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that pyarrow raises for invalid values and pages."""
    import pyarrow as pa

    python_errors = (ValueError, ArithmeticError, TypeError, LookupError, NotImplementedError)
    return (*python_errors, pa.ArrowException)


def _record(row: Any) -> Any:
    try:
        return row.to_pylist()[0]
    except UnicodeDecodeError as error:
        return Rejection("decodable", None, first_line(error))
    except conversion_errors() as error:
        return Rejection("broken_record", None, first_line(error))


def _parquet_file(source: Any, **options: Any) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False, **options)


def _text_leaves(schema: Any, columns: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the paths of the text columns with one value per row, and of those with lists."""
    texts: list[str] = []
    lists: list[str] = []
    for leaf in (schema.column(number) for number in range(len(schema.names))):
        if leaf.physical_type == "BYTE_ARRAY" and leaf.path.split(".")[0] in columns:
            (lists if leaf.max_repetition_level else texts).append(leaf.path)
    return texts, lists


def _max_dictionary_rows(source: Any, plain: Any, texts: list[str], group: int) -> int:
    """Return how many rows may repeat the longest value of the columns' dictionaries; reads one row only."""
    opened = _parquet_file(source, metadata=plain.metadata, read_dictionary=texts)
    columns = sorted({path.split(".")[0] for path in texts})
    longest = 0
    for batch in opened.iter_batches(1, row_groups=[group], columns=columns, use_threads=False):
        longest = sum(_longest(column) for column in batch.columns)
        break
    return max(1, _MAX_REPEATED_BYTES // max(1, longest))


def _longest(array: Any) -> int:
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        return int(_value_bytes(array.dictionary).max(initial=0))
    if pa.types.is_struct(array.type):
        return sum(_longest(child) for child in array.flatten())
    return 0


def _value_bytes(array: Any) -> NDArray[np.int64]:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    sizes = np.full(len(array), _VALUE_BYTES, np.int64)
    if pa.types.is_dictionary(kind):
        if len(array.dictionary):
            is_valid = pc.is_valid(array.indices).to_numpy(zero_copy_only=False)
            sizes += _value_bytes(array.dictionary)[_numbers(array.indices)] * is_valid
    elif pa.types.is_struct(kind):
        for child in array.flatten():
            sizes += _value_bytes(child)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        ends = np.cumsum(_numbers(pc.list_value_length(array)))
        sums = np.concatenate(([0], np.cumsum(_value_bytes(array.flatten()))))
        sizes += np.diff(sums[ends], prepend=0)
    elif pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        sizes += _numbers(pc.binary_length(array.cast(pa.large_binary())))
    elif _is_text(kind):
        sizes += _numbers(pc.binary_length(array))
    elif len(array):
        sizes += array.nbytes // len(array)
    return sizes


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    checks = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return any(check(kind) for check in checks)


def _numbers(array: Any) -> NDArray[np.int64]:
    import pyarrow.compute as pc

    numbers: NDArray[np.int64] = pc.fill_null(array, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers
