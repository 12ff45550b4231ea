"""Decompression of streams in bounded memory, with limits against decompression bombs; division among tasks."""

import bz2
import lzma
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

from cluster.errors import first_line
from data_prep.sources.limits import ReadLimits

Codec = Literal["gz", "bz2", "xz", "zst"]
CODECS: dict[str, Codec] = {".gz": "gz", ".bz2": "bz2", ".xz": "xz", ".zst": "zst"}
PIECE_BYTES = 1 << 20
_READ_BYTES = 1 << 16
# zstandard has no limit on how much it unpacks at once: 1 KiB may contain 256 blocks of 128 KiB.
_ZST_READ_BYTES = 1 << 10
_MAX_WINDOW_BYTES = 128 << 20


class StreamEnd(Exception):
    """A stream cannot be read further. `offset` is the number of bytes unpacked before, `rule` the rule of its row."""

    def __init__(self, rule: str, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.rule = rule
        self.reason = reason
        self.offset = offset


def plain_pieces(file: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of an uncompressed file in pieces of at most a MiB."""
    while data := file.read(PIECE_BYTES):
        yield data


def unpacked_pieces(file: BinaryIO, codec: Codec, limits: ReadLimits) -> Iterator[bytes]:
    """Yield the unpacked bytes in pieces of at most a MiB (zst: 32 MiB).

    Consecutive members are one stream; zero bytes between them are padding. StreamEnd (`truncated`, `bomb`) after the
    pieces that could be unpacked.
    """
    source = _Source(file, _ZST_READ_BYTES if codec == "zst" else _READ_BYTES)
    num_bytes = 0
    data = source.next_piece()
    while True:
        decoder = _Decoder(codec)
        while not decoder.ended:
            if not data:
                raise StreamEnd("truncated", f"{codec} data ends before its end mark", num_bytes)
            for piece in _unpack(decoder, data, codec, num_bytes):
                if not limits.allows_unpacked(source.num_bytes, num_bytes + len(piece)):
                    raise StreamEnd(
                        "bomb", f"unpacks {source.num_bytes} bytes to more than allowed", num_bytes
                    )
                num_bytes += len(piece)
                yield piece
            data = decoder.unused or source.next_piece() if decoder.ended else source.next_piece()
        while data and not (data := data.lstrip(b"\0")):
            data = source.next_piece()
        if not data:
            return


def _unpack(decoder: "_Decoder", data: bytes, codec: Codec, offset: int) -> Iterator[bytes]:
    pieces = decoder.feed(data)
    while True:
        try:
            piece = next(pieces, None)
        except decoder.errors as error:
            # Both libraries mention memory when a stream needs a larger window than allowed.
            rule = "bomb" if "emory" in str(error) else "truncated"
            raise StreamEnd(rule, f"{codec} data is damaged: {first_line(error)}", offset) from error
        if piece is None:
            return
        if piece:
            offset += len(piece)
            yield piece


class _Source:
    """Reads a file in pieces of a fixed size and counts the bytes."""

    def __init__(self, file: BinaryIO, piece_bytes: int) -> None:
        self.num_bytes = 0
        self._file = file
        self._piece_bytes = piece_bytes
        self._buffer = b""
        self._position = 0

    def next_piece(self) -> bytes:
        if self._position >= len(self._buffer):
            self._buffer, self._position = self._file.read(_READ_BYTES), 0
        piece = self._buffer[self._position : self._position + self._piece_bytes]
        self._position += len(piece)
        self.num_bytes += len(piece)
        return piece


class _Decoder:
    """One member's decoder, with the same interface for all libraries."""

    def __init__(self, codec: Codec) -> None:
        import zstandard

        self.errors: tuple[type[Exception], ...] = (zlib.error, lzma.LZMAError, zstandard.ZstdError)
        self.errors += (OSError, EOFError, ValueError)  # bz2
        self._codec = codec
        self._decoder: Any
        if codec == "gz":
            self._decoder = zlib.decompressobj(31)
        elif codec == "bz2":
            self._decoder = bz2.BZ2Decompressor()
        elif codec == "xz":
            self._decoder = lzma.LZMADecompressor(memlimit=_MAX_WINDOW_BYTES)
        else:
            window = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
            self._decoder = window.decompressobj()

    @property
    def ended(self) -> bool:
        return bool(self._decoder.eof)

    @property
    def unused(self) -> bytes:
        """The bytes that were fed after the member's end."""
        return bytes(self._decoder.unused_data)

    def feed(self, data: bytes) -> Iterator[bytes]:
        decoder = self._decoder
        if self._codec == "zst":
            yield decoder.decompress(data)
        elif self._codec == "gz":
            while data and not decoder.eof:
                yield decoder.decompress(data, PIECE_BYTES)
                data = decoder.unconsumed_tail
        else:
            yield decoder.decompress(data, PIECE_BYTES)
            while not decoder.eof and not decoder.needs_input:
                yield decoder.decompress(b"", PIECE_BYTES)


class ByteStream:
    """Reads bytes in any amounts from an iterator of pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self.offset = 0
        self._pieces = pieces
        self._piece = b""
        self._position = 0

    def take(self, num_bytes: int) -> bytes:
        """Return the next `num_bytes` bytes, fewer only at the end."""
        end = self._position + num_bytes
        if end <= len(self._piece):
            data = self._piece[self._position : end]
            self._position = end
        else:
            data = b"".join(self._parts(num_bytes))
        self.offset += len(data)
        return data

    def skip(self, num_bytes: int) -> int:
        """Skip `num_bytes` bytes and return how many there were."""
        num_skipped = sum(len(part) for part in self._parts(num_bytes))
        self.offset += num_skipped
        return num_skipped

    def _parts(self, num_bytes: int) -> Iterator[bytes]:
        while num_bytes > 0:
            if self._position >= len(self._piece):
                self._piece, self._position = next(self._pieces, b""), 0
                if not self._piece:
                    return
            part = self._piece[self._position : self._position + num_bytes]
            self._position += len(part)
            num_bytes -= len(part)
            yield part


class SeekableStream(ByteStream):
    """A ByteStream over an uncompressed file, which seeks to skip."""

    def __init__(self, file: BinaryIO, num_bytes: int) -> None:
        super().__init__(iter(()))
        self._file = file
        self._num_bytes = num_bytes

    def take(self, num_bytes: int) -> bytes:
        parts = []
        while num_bytes > 0 and (part := self._file.read(num_bytes)):
            parts.append(part)
            num_bytes -= len(part)
        data = b"".join(parts)
        self.offset += len(data)
        return data

    def skip(self, num_bytes: int) -> int:
        num_skipped = max(0, min(num_bytes, self._num_bytes - self.offset))
        self.offset += num_skipped
        self._file.seek(self.offset)
        return num_skipped


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
