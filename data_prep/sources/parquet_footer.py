"""A check of Parquet footers before they are used: pyarrow aborts the process at some damaged ones."""

import io
from typing import Any


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
