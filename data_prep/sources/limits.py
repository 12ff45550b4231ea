"""How much is read of anything a source offers, whatever its headers say."""

from dataclasses import dataclass

# Nobody's honest code packs better than this; deflate's own limit is 1,032.
MAX_ARCHIVE_RATIO = 200.0
MAX_ARCHIVE_BYTES = 1 << 40
# The ratio says nothing about the first bytes of a stream: a short run of zeros packs very well.
RATIO_GRACE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What a reader keeps to.

    Files outside `min_file_bytes`..`max_file_bytes` are dropped by the rule `file_size`; not more than
    `max_file_bytes` + 1 bytes of one are held. A compressed stream or archive is given up (`bomb`) where it
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

    def allows_size(self, num_bytes: int) -> bool:
        return self.min_file_bytes <= num_bytes <= self.max_file_bytes

    def allows_unpacked(self, packed_bytes: int, unpacked_bytes: int) -> bool:
        """Whether a stream that took `packed_bytes` may have unpacked to `unpacked_bytes`."""
        if unpacked_bytes > self.max_archive_bytes:
            return False
        return unpacked_bytes <= max(RATIO_GRACE_BYTES, packed_bytes * self.max_archive_ratio)
