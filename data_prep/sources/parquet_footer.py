"""Whether a Parquet footer may be looked at: pyarrow aborts the process at some damaged ones."""

import io
from typing import Any


class DamagedFooter(ValueError):
    """What a footer says of a column makes no sense."""


def check_footer(metadata: Any, leaves: list[int]) -> None:
    """Raises DamagedFooter unless every row group's chunks of these leaf columns can be looked at.

    Asking pyarrow's metadata for a chunk that its C++ finds damaged ends the process; a reader of the same
    chunk raises instead. So a reader is made of each, over a file of which nothing can be read: if it comes
    to reading, the chunk's entry was found good.
    """
    import pyarrow.parquet as pq

    with_rows = [n for n in range(metadata.num_row_groups) if metadata.row_group(n).num_rows]
    for group in with_rows:
        for leaf in leaves:
            unread = _Unread()
            opened = pq.ParquetFile(unread, metadata=metadata, pre_buffer=False, buffer_size=1 << 12)
            name = metadata.schema.column(leaf).path
            reason = "nothing is read of it"
            try:
                next(opened.iter_batches(1, row_groups=[group], columns=[name], use_threads=False), None)
            except Exception as error:  # whatever it is, it is no answer if it came before the reading
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            if not unread.was_read:
                raise DamagedFooter(f"row group {group}, column {name}: {reason}")


class _Unread(io.RawIOBase):
    """A large file of which nothing can be read."""

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
