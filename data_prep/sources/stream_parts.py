"""Division of one stream among several tasks.

A compressed stream can only be read from its beginning. So each of K tasks unpacks all of it, and keeps the records
that begin in its chunks: chunk i, of CHUNK_BYTES unpacked bytes, belongs to part i % K. Every record is in exactly one
part. Unpacking runs at some 200 MB/s, the later steps at about 10, so each additional part costs 5 % of the work:
medium files get a few parts, and only very large files get many.
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
        """Return whether the record that begins at this unpacked byte belongs to this part."""
        return offset // self.chunk_bytes % self.num_parts == self.number


def stream_parts(packed_bytes: int | None) -> list[StreamPart]:
    """Return the parts of a stream of that size; one part if the size is unknown."""
    packed_bytes = packed_bytes or 0
    early = min(_MAX_EARLY_PARTS, math.ceil(packed_bytes / _PACKED_BYTES_PER_EARLY_PART))
    num_parts = min(_MAX_PARTS, max(1, early, math.ceil(packed_bytes / _PACKED_BYTES_PER_PART)))
    return [StreamPart(number, num_parts) for number in range(num_parts)]
