"""How one stream is shared by several tasks.

A compressed stream can only be read from its beginning. So each of K tasks unpacks all of it, and keeps the
records that begin in its chunks: chunk i, of CHUNK_BYTES unpacked bytes, belongs to part i % K. The union of
the parts is every record once. Unpacking runs at some 200 MB/s, what follows at about 10: each part more costs
5 % of the work once more, so a few parts come early and many only for very large files.
"""

import math
from dataclasses import dataclass

CHUNK_BYTES = 16 << 20
_PACKED_BYTES_PER_PART = 256 << 20
_MAX_PARTS = 16
_PACKED_BYTES_PER_EARLY_PART = 32 << 20
_MAX_EARLY_PARTS = 4


@dataclass(frozen=True, slots=True)
class StreamPart:
    """Part `number` of `num_parts`."""

    number: int = 0
    num_parts: int = 1
    chunk_bytes: int = CHUNK_BYTES

    def owns(self, offset: int) -> bool:
        """Whether the record that begins at this unpacked byte is this part's."""
        return offset // self.chunk_bytes % self.num_parts == self.number


def stream_parts(packed_bytes: int | None) -> list[StreamPart]:
    """The parts of a stream of that size; one if nobody knows the size."""
    packed_bytes = packed_bytes or 0
    early = min(_MAX_EARLY_PARTS, math.ceil(packed_bytes / _PACKED_BYTES_PER_EARLY_PART))
    num_parts = min(_MAX_PARTS, max(1, early, math.ceil(packed_bytes / _PACKED_BYTES_PER_PART)))
    return [StreamPart(number, num_parts) for number in range(num_parts)]
