"""Limits on how much is read from a source, whatever the headers of its files claim."""

from dataclasses import dataclass

from data_prep.documents import Rejection
from data_prep.text.licences import is_licence_file

# Real code does not compress better than this; deflate's own limit is 1,032.
MAX_ARCHIVE_RATIO = 200.0
MAX_ARCHIVE_BYTES = 1 << 40
# The ratio is not meaningful for the first bytes of a stream: a short run of zeros compresses very well.
RATIO_GRACE_BYTES = 16 << 20
# Licence files beyond the size limit are read for the licence, too; the longest licences have 50 KB.
MAX_LICENCE_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits that readers observe.

    Files outside `min_file_bytes`..`max_file_bytes` are dropped by the rule `file_size`; at most `max_bytes_of` + 1
    bytes of a file are in memory. Reading of a compressed stream or archive stops (`bomb`) when it has unpacked to
    more than `max_archive_ratio` times the bytes read (from RATIO_GRACE_BYTES on) or to more than `max_archive_bytes`.
    """

    min_file_bytes: int = 0
    max_file_bytes: int = 1 << 20
    max_archive_ratio: float = MAX_ARCHIVE_RATIO
    max_archive_bytes: int = MAX_ARCHIVE_BYTES

    @property
    def max_record_bytes(self) -> int:
        """The longest JSONL line that is parsed: JSON may need six bytes for one, and has other columns."""
        return max(16 << 20, 6 * self.max_file_bytes + (1 << 20))

    def size_rejection(self, num_bytes: int) -> Rejection | None:
        """Return a rejection by the rule `file_size`, None if the size is within the limits."""
        if self.min_file_bytes <= num_bytes <= self.max_file_bytes:
            return None
        return Rejection("file_size", float(num_bytes))

    def wants(self, path: str, num_bytes: int) -> bool:
        """Return whether the bytes of a file of this size are read.

        Those of a licence file are read for its licence, even if its size drops it.
        """
        if self.size_rejection(num_bytes) is None:
            return True
        return num_bytes <= MAX_LICENCE_BYTES and is_licence_file(path)

    def max_bytes_of(self, path: str) -> int:
        """Return the size in bytes up to which the file is read."""
        return max(self.max_file_bytes, MAX_LICENCE_BYTES) if is_licence_file(path) else self.max_file_bytes

    def allows_unpacked(self, packed_bytes: int, unpacked_bytes: int) -> bool:
        """Return whether `packed_bytes` of a stream may have unpacked to `unpacked_bytes`."""
        if unpacked_bytes > self.max_archive_bytes:
            return False
        return unpacked_bytes <= max(RATIO_GRACE_BYTES, packed_bytes * self.max_archive_ratio)
