"""Readers of tar archives, plain or compressed, and of single compressed texts; every length in a header is bounded."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from data_prep.documents import RawFile, Rejection
from data_prep.sources.archive_names import MemberNames
from data_prep.sources.decompress import (
    ByteStream,
    Codec,
    SeekableStream,
    StreamEnd,
    StreamPart,
    plain_pieces,
    unpacked_pieces,
)
from data_prep.sources.files import SourceFile
from data_prep.sources.limits import ReadLimits
from data_prep.sources.listed import unreadable
from data_prep.sources.units import printable_bytes

_BLOCK_BYTES = 512
_MAX_HEADER_BYTES = 1 << 20
_ZEROS = bytes(_BLOCK_BYTES)
Kind = Literal["file", "folder", "link", "sparse", "special"]
_KINDS: dict[bytes, Kind] = {
    b"0": "file", b"\0": "file", b"7": "file", b"1": "link", b"2": "link", b"5": "folder", b"S": "sparse",
    b"D": "folder",
}  # fmt: skip
_WITHOUT_DATA = frozenset((b"1", b"2", b"3", b"4", b"5", b"6"))
_SPECIAL = {b"3": "character device", b"4": "block device", b"6": "FIFO"}


@dataclass(frozen=True, slots=True)
class TarMember:
    """A member; `offset` is that of its first header, `detail` a link's target or the kind of special file."""

    name: bytes
    kind: Kind
    offset: int
    num_bytes: int
    detail: bytes = b""


@dataclass(slots=True)
class _Extended:
    """Values from the headers before a member's own header."""

    name: bytes | None = None
    target: bytes | None = None
    num_bytes: int | None = None
    sparse: bool = False


def tar_members(stream: ByteStream) -> Iterator[TarMember]:
    """Yield members in order; after each, the caller may read the member's bytes from `stream`.

    StreamEnd (`truncated`) when the tar ends without its end mark or is damaged.
    """
    extended, start = _Extended(), stream.offset
    while True:
        offset = stream.offset
        header = stream.take(_BLOCK_BYTES)
        if len(header) < _BLOCK_BYTES:
            raise StreamEnd("truncated", "the tar ends without its end mark", offset)
        if header == _ZEROS:
            return
        size = _checked_size(header, offset)
        kind = header[156:157]
        if kind in b"LKxgXN" and kind:
            body = _read_body(stream, size, offset)
            if kind == b"L":
                extended.name = body.split(b"\0", 1)[0]
            elif kind == b"K":
                extended.target = body.split(b"\0", 1)[0]
            elif kind in (b"x", b"X"):
                _read_pax(body, extended, offset)
            continue
        if kind == b"S":
            _skip_sparse_map(stream, header)
        if extended.num_bytes is not None:
            size = extended.num_bytes
        member = _member(header, extended, start, size)
        # Links and devices have no data, whatever size they claim.
        data_bytes = 0 if kind in _WITHOUT_DATA else size
        end = stream.offset + _padded(data_bytes)
        yield member
        offset, rest_bytes = stream.offset, end - stream.offset
        if rest_bytes and stream.skip(rest_bytes) < rest_bytes:
            raise StreamEnd("truncated", "the tar ends inside a member", offset)
        extended, start = _Extended(), stream.offset


def _member(header: bytes, extended: _Extended, start: int, size: int) -> TarMember:
    flag = header[156:157]
    kind: Kind = _KINDS.get(flag, "special")
    name = extended.name if extended.name is not None else _name(header)
    if kind == "file" and name.endswith(b"/"):  # how tars older than ustar mark a folder
        kind = "folder"
    if kind == "file" and extended.sparse:
        kind = "sparse"
    detail = b""
    if kind == "link":
        detail = extended.target if extended.target is not None else header[157:257].split(b"\0", 1)[0]
    elif kind == "special":
        detail = _SPECIAL.get(flag, f"tar type {flag!r}").encode()
    return TarMember(name, kind, start, size, detail)


def _name(header: bytes) -> bytes:
    name = header[:100].split(b"\0", 1)[0]
    prefix = header[345:500].split(b"\0", 1)[0] if header[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _checked_size(header: bytes, offset: int) -> int:
    try:
        checksum = int(header[148:156].strip(b" \0") or b"0", 8)
        size = _number(header[124:136])
    except ValueError:
        checksum, size = -1, -1
    # The checksum is of the header with blanks in the checksum's place.
    total = sum(header) - sum(header[148:156]) + 8 * ord(" ")
    if checksum != total:
        # Some old programs summed signed bytes.
        total -= 256 * sum(byte > 127 for byte in header[:148] + header[156:])
    if size < 0 or checksum != total:
        raise StreamEnd("truncated", "this is no tar header", offset)
    return size


def _number(field: bytes) -> int:
    if field[0] & 0x80:
        return int.from_bytes(field, "big", signed=False) - (0x80 << 8 * (len(field) - 1))
    return int(field.strip(b" \0") or b"0", 8)


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // _BLOCK_BYTES) * _BLOCK_BYTES


def _read_body(stream: ByteStream, size: int, offset: int) -> bytes:
    if size > _MAX_HEADER_BYTES:
        raise StreamEnd("truncated", f"a header claims {size} bytes", offset)
    body = stream.take(_padded(size))
    if len(body) < _padded(size):
        raise StreamEnd("truncated", "the tar ends inside a header", offset)
    return body[:size]


def _skip_sparse_map(stream: ByteStream, header: bytes) -> None:
    more = header[482:483] not in (b"\0", b"")
    while more:
        block = stream.take(_BLOCK_BYTES)
        more = len(block) == _BLOCK_BYTES and block[504:505] != b"\0"


def _read_pax(body: bytes, extended: _Extended, offset: int) -> None:
    position = 0
    while position < len(body) and body[position : position + 1] != b"\0":
        space = body.find(b" ", position, position + 20)
        try:
            length = int(body[position:space]) if space >= 0 else 0
        except ValueError:
            length = 0
        if space < 0 or length <= space - position or position + length > len(body):
            raise StreamEnd("truncated", "a pax header is damaged", offset)
        key, _, value = body[space + 1 : position + length - 1].partition(b"=")
        position += length
        if key in (b"path", b"GNU.sparse.name"):
            extended.name = value
        elif key == b"linkpath":
            extended.target = value
        elif key == b"size" and value.isdigit() and len(value) < 20:
            extended.num_bytes = int(value)
        if key.startswith(b"GNU.sparse."):
            extended.sparse = True


@dataclass(frozen=True, slots=True)
class TarReader:
    """The reader of the members of a tar that begin in a part's chunks."""

    file: SourceFile
    codec: Codec | None
    names: MemberNames
    part: StreamPart

    def read(self, limits: ReadLimits) -> Iterator[RawFile]:
        try:
            yield from self._members(limits)
        except StreamEnd as end:
            if self.part.owns(end.offset):
                yield self.names.end_row(Rejection(end.rule, float(end.offset), end.reason))
        except OSError as error:
            # Each part reads the file separately, so no other part reports what this one could not read.
            yield self.names.end_row(unreadable(error), self.part.number)

    def _members(self, limits: ReadLimits) -> Iterator[RawFile]:
        skips = self.codec is None and self.file.seekable and self.file.num_bytes is not None
        with self.file.open(sequential=not skips) as file:
            if skips:
                stream: ByteStream = SeekableStream(file, self.file.num_bytes or 0)
            elif self.codec is None:
                stream = ByteStream(plain_pieces(file))
            else:
                stream = ByteStream(unpacked_pieces(file, self.codec, limits))
            for member in tar_members(stream):
                if member.kind != "folder" and self.part.owns(member.offset):
                    yield self._file(member, stream, limits)
            if self.codec is not None:
                stream.skip(limits.max_archive_bytes)  # to detect a stream that is cut after the tar's end

    def _file(self, member: TarMember, stream: ByteStream, limits: ReadLimits) -> RawFile:
        name = printable_bytes(member.name)
        rejection, data = None, None
        if member.kind == "link":
            rejection = Rejection("link", None, printable_bytes(member.detail))
        elif member.kind == "special":
            rejection = Rejection("not_regular", None, member.detail.decode())
        elif member.kind == "sparse":
            rejection = Rejection("unsupported", None, "sparse file")
        elif limits.wants(name, member.num_bytes) and self.names.wants(name):
            offset = stream.offset
            try:
                data = stream.take(member.num_bytes)
            except OSError as error:
                if not isinstance(stream, SeekableStream):
                    raise
                rejection = unreadable(error)  # the next member can still be found by this one's header
            if data is not None and len(data) < member.num_bytes:
                raise StreamEnd("truncated", "the tar ends inside a member", offset)
        rejection = rejection or limits.size_rejection(member.num_bytes)
        return self.names.file(name, member.offset, member.num_bytes, data, rejection)


@dataclass(frozen=True, slots=True)
class CompressedText:
    """The reader of a .gz, .bz2, .xz or .zst file with one text."""

    file: SourceFile
    codec: Codec
    names: MemberNames

    def read(self, limits: ReadLimits) -> Iterator[RawFile]:
        rejection, parts, num_bytes = None, [], 0
        try:
            with self.file.open(sequential=True) as file:
                for piece in unpacked_pieces(file, self.codec, limits):
                    num_bytes += len(piece)
                    parts.append(piece)
                    if num_bytes > limits.max_bytes_of(self.names.stem):
                        break
        except StreamEnd as end:
            rejection = Rejection(end.rule, float(end.offset), end.reason)
        except OSError as error:
            rejection = unreadable(error)
        is_complete = rejection is None and limits.wants(self.names.stem, num_bytes)
        data = b"".join(parts) if is_complete else None
        rejection = rejection or limits.size_rejection(num_bytes)
        yield self.names.file(self.names.stem, 0, num_bytes, data, rejection)
