"""The reader of a zip without its central directory: members are found one after the other from the beginning."""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from data_prep.documents import RawFile, Rejection
from data_prep.sources.archive_names import MemberNames
from data_prep.sources.files import SourceFile
from data_prep.sources.limits import ReadLimits
from data_prep.sources.listed import unreadable
from data_prep.sources.units import printable_bytes
from data_prep.sources.zip_archive import ZipMember, ZipReader

_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_PIECE_BYTES = 1 << 16
_DESCRIPTOR_FLAG = 8
_UTF8_FLAG = 1 << 11
_MAX_32 = 0xFFFFFFFF


class _Broken(Exception):
    """The scan cannot continue."""


@dataclass(frozen=True, slots=True)
class ZipScan:
    """Reads members up to the first invalid position, and yields one row for that position."""

    file: SourceFile
    names: MemberNames
    reason: str

    def read(self, limits: ReadLimits) -> Iterator[RawFile]:
        position = total_bytes = 0
        try:
            with self.file.open_seekable() as file:
                while (found := _member_at(file, position, total_bytes, limits)) is not None:
                    member, position = found
                    total_bytes = member.total_bytes
                    yield from self._file(file, member, limits)
        except _Broken as error:
            yield self.names.end_row(Rejection("truncated", float(position), f"{self.reason}; {error}"))
        except OSError as error:
            yield self.names.end_row(unreadable(error))
        else:
            yield self.names.end_row(Rejection("truncated", float(position), self.reason))

    def _file(self, file: BinaryIO, member: ZipMember, limits: ReadLimits) -> Iterator[RawFile]:
        if member.name.endswith("/"):
            return
        data, rejection = ZipReader(self.file, self.names, ()).read_contents(file, member, limits)
        yield self.names.file(member.name, member.offset, member.num_bytes, data, rejection)


def _member_at(
    file: BinaryIO, position: int, total_bytes: int, limits: ReadLimits
) -> tuple[ZipMember, int] | None:
    """Return the member at `position` and the position of the next; None at the end of the members."""
    file.seek(position)
    header = file.read(_LOCAL_HEADER.size)
    if header[:4] in (b"PK\1\2", b"PK\5\6"):  # the central directory, or the end
        return None
    if len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\3\4":
        raise _Broken("no member begins here")
    _, _, flags, method, _, _, crc, packed, size, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
    raw_name = file.read(name_bytes)
    start = position + _LOCAL_HEADER.size + name_bytes + extra_bytes
    name = printable_bytes(raw_name) if flags & _UTF8_FLAG else raw_name.decode("cp437")
    if _MAX_32 in (packed, size):
        raise _Broken("a member of more than 4 GiB")
    end = start + packed
    if flags & _DESCRIPTOR_FLAG and not packed:
        if method != 8:
            raise _Broken("a member whose length follows it")
        packed, size, crc = _measure(file, start, limits)
        end = _after_descriptor(file, start + packed)
    else:
        file.seek(max(start, end - 1))
        if packed and not file.read(1):
            raise _Broken("the archive ends inside a member")
    total_bytes += size
    return ZipMember(name, position, packed, size, total_bytes, method, crc, bool(flags & 1), False), end


def _measure(file: BinaryIO, start: int, limits: ReadLimits) -> tuple[int, int, int]:
    """Return the packed and unpacked bytes and the CRC-32 of deflated data whose header has none of them."""
    file.seek(start)
    decoder = zlib.decompressobj(-15)
    packed_bytes = num_bytes = crc = 0
    data = b""
    while not decoder.eof:
        if not data:
            data = file.read(_PIECE_BYTES)
            packed_bytes += len(data)
        if not data:
            raise _Broken("the archive ends inside a member")
        try:
            piece = decoder.decompress(data, 1 << 20)
        except zlib.error as error:
            raise _Broken(str(error)) from error
        num_bytes += len(piece)
        crc = zlib.crc32(piece, crc)
        if not limits.allows_unpacked(packed_bytes, num_bytes):
            raise _Broken("a member unpacks to more than allowed")
        data = decoder.unconsumed_tail
    return packed_bytes - len(decoder.unused_data), num_bytes, crc


def _after_descriptor(file: BinaryIO, position: int) -> int:
    """Return the position after a descriptor.

    Descriptors have a magic number or not, and lengths of 4 or 8 bytes; the header that follows decides.
    """
    file.seek(position)
    data = file.read(28)
    for num_bytes in (16, 12, 24, 20):
        if data[num_bytes : num_bytes + 4] in (b"PK\3\4", b"PK\1\2"):
            return position + num_bytes
    return position + 16
