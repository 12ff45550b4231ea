"""How much is read of anything a source offers, whatever its headers say."""

from dataclasses import dataclass

from data_prep.documents import Rejection
from data_prep.text.licences import is_licence_file

# Nobody's honest code packs better than this; deflate's own limit is 1,032.
MAX_ARCHIVE_RATIO = 200.0
MAX_ARCHIVE_BYTES = 1 << 40
# The ratio says nothing about the first bytes of a stream: a short run of zeros packs very well.
RATIO_GRACE_BYTES = 16 << 20
# Longer ones than the limit of size allows are read for the licence, too; the longest licences have 50 KB.
MAX_LICENCE_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What a reader keeps to.

    Files outside `min_file_bytes`..`max_file_bytes` are dropped by the rule `file_size`; not more than
    `max_bytes_of` + 1 bytes of one are held. A compressed stream or archive is given up (`bomb`) where it
    has unpacked to more than `max_archive_ratio` times the bytes it took (from RATIO_GRACE_BYTES on) or to
    more than `max_archive_bytes`.
    """

    min_file_bytes: int = 0
    max_file_bytes: int = 1 << 20
    max_archive_ratio: float = MAX_ARCHIVE_RATIO
    max_archive_bytes: int = MAX_ARCHIVE_BYTES

    @property
    def max_record_bytes(self) -> int:
        """The longest line of JSONL that is parsed: JSON may spell a byte with six, and carries other columns."""
        return max(16 << 20, 6 * self.max_file_bytes + (1 << 20))

    def size_rejection(self, num_bytes: int) -> Rejection | None:
        """The rule `file_size`, if the size breaks it."""
        if self.min_file_bytes <= num_bytes <= self.max_file_bytes:
            return None
        return Rejection("file_size", float(num_bytes))

    def wants(self, path: str, num_bytes: int) -> bool:
        """Whether the bytes of a file of this size are read: a licence file's are for its licence, though its
        size may drop it."""
        if self.size_rejection(num_bytes) is None:
            return True
        return num_bytes <= MAX_LICENCE_BYTES and is_licence_file(path)

    def max_bytes_of(self, path: str) -> int:
        """The most bytes of which a file is read."""
        return max(self.max_file_bytes, MAX_LICENCE_BYTES) if is_licence_file(path) else self.max_file_bytes

    def allows_unpacked(self, packed_bytes: int, unpacked_bytes: int) -> bool:
        """Whether a stream that took `packed_bytes` may have unpacked to `unpacked_bytes`."""
        if unpacked_bytes > self.max_archive_bytes:
            return False
        return unpacked_bytes <= max(RATIO_GRACE_BYTES, packed_bytes * self.max_archive_ratio)
