"""Readers of zip archives: by their central directory, or from the beginning where there is none."""

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from cluster.errors import first_line
from data_prep.documents import RawFile, Rejection
from data_prep.sources.archive_names import MemberNames
from data_prep.sources.files import SourceFile
from data_prep.sources.limits import ReadLimits
from data_prep.sources.listed import unreadable
from data_prep.sources.units import cut_runs, printable_bytes

_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_LOCAL_MAGIC = b"PK\3\4"
_BUFFER_BYTES = 1 << 18
_PIECE_BYTES = 1 << 16
_STORED, _DEFLATED, _BZIP2, _LZMA, _ZSTD, _XZ = 0, 8, 12, 14, 93, 95
_READ_METHODS = frozenset({_STORED, _DEFLATED, _BZIP2, _ZSTD, _XZ})
# Exceptions that zipfile raises for an invalid central directory.
_DIRECTORY_ERRORS = (
    zipfile.BadZipFile,
    struct.error,
    ValueError,
    NotImplementedError,
    IndexError,
    OverflowError,
)


@dataclass(frozen=True, slots=True)
class ZipMember:
    """An entry of the central directory. `total_bytes`: the unpacked bytes of it and all entries before it."""

    name: str
    offset: int
    packed_bytes: int
    num_bytes: int
    total_bytes: int
    method: int
    crc: int
    is_encrypted: bool
    is_link: bool


class NoDirectory(Exception):
    """A file has no central directory: it is truncated, damaged, or no zip."""


def zip_members(file: SourceFile) -> list[ZipMember]:
    """Return the files of the central directory in the order of their offsets. NoDirectory, OSError."""
    with file.open_seekable() as opened:
        try:
            with zipfile.ZipFile(opened) as archive:
                infos = archive.infolist()
        except _DIRECTORY_ERRORS as error:
            raise NoDirectory(first_line(error)) from error
    members: list[ZipMember] = []
    total_bytes = 0
    for info in sorted(infos, key=lambda info: (info.header_offset, info.orig_filename)):
        if info.orig_filename.endswith("/"):
            continue
        total_bytes += info.file_size
        is_link = info.create_system == 3 and stat.S_ISLNK(info.external_attr >> 16)
        members.append(
            ZipMember(
                info.orig_filename.encode("utf-8", "backslashreplace").decode(),
                info.header_offset,
                info.compress_size,
                info.file_size,
                total_bytes,
                info.compress_type,
                info.CRC,
                bool(info.flag_bits & 1),
                is_link,
            )
        )
    return members


def zip_runs(members: list[ZipMember]) -> Iterator[tuple[ZipMember, ...]]:
    """Yield runs of consecutive members of about UNIT_BYTES."""
    for run in cut_runs([member.packed_bytes for member in members]):
        yield tuple(members[run])


@dataclass(frozen=True, slots=True)
class ZipReader:
    """The reader of a run of members."""

    file: SourceFile
    names: MemberNames
    members: tuple[ZipMember, ...]

    def read(self, limits: ReadLimits) -> Iterator[RawFile]:
        try:
            opened = self.file.open_seekable()
        except OSError as error:
            for member in self.members:
                yield self._row(member, unreadable(error))
            return
        with opened:
            for member in self.members:
                try:
                    data, rejection = self.read_contents(opened, member, limits)
                except OSError as error:
                    data, rejection = None, unreadable(error)
                yield self._row(member, rejection, data)

    def _row(self, member: ZipMember, rejection: Rejection | None, data: bytes | None = None) -> RawFile:
        return self.names.file(member.name, member.offset, member.num_bytes, data, rejection)

    def read_contents(
        self, opened: BinaryIO, member: ZipMember, limits: ReadLimits
    ) -> tuple[bytes | None, Rejection | None]:
        """Return a member's bytes, its rejection, or both. OSError when it cannot be read."""
        data, rejection = None, self._rejection(member, limits)
        if (
            rejection is None
            and limits.wants(member.name, member.num_bytes)
            and self.names.wants(member.name)
        ):
            data, rejection = read_member(opened, member)
        return data, rejection or limits.size_rejection(member.num_bytes)

    def _rejection(self, member: ZipMember, limits: ReadLimits) -> Rejection | None:
        """Return the rejection that follows from the directory, except that of the size."""
        if not limits.allows_unpacked(self.file.num_bytes or 0, member.total_bytes):
            reason = f"an archive of {self.file.num_bytes} bytes claims to unpack to more than allowed"
            return Rejection("bomb", float(member.total_bytes), reason)
        if member.is_link:
            return Rejection("link")
        if member.is_encrypted:
            return Rejection("encrypted")
        if member.method not in _READ_METHODS:
            return Rejection("unsupported", None, f"zip method {member.method}")
        return None


def read_member(file: BinaryIO, member: ZipMember) -> tuple[bytes | None, Rejection | None]:
    """Return a member's bytes, or a rejection. Unpacks at most the size in the directory and one piece."""
    # A damaged directory may have offsets before the file's beginning.
    file.seek(max(0, member.offset))
    header = file.read(_LOCAL_HEADER.size) if member.offset >= 0 else b""
    if len(header) < _LOCAL_HEADER.size or header[:4] != _LOCAL_MAGIC:
        return None, Rejection("truncated", float(member.offset), "no member begins where the directory says")
    *_, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
    file.seek(name_bytes + extra_bytes, io.SEEK_CUR)
    try:
        data = _unpack(file, member)
    except _damage_errors() as error:
        return None, Rejection("truncated", float(member.offset), first_line(error))
    except OSError as error:
        if error.errno is not None:
            raise
        return None, Rejection("truncated", float(member.offset), first_line(error))  # bz2
    if len(data) > member.num_bytes:
        return None, Rejection("bomb", float(len(data)), f"holds more than its {member.num_bytes} bytes")
    if len(data) < member.num_bytes or zlib.crc32(data) != member.crc:
        reason = "is cut" if len(data) < member.num_bytes else "does not have its CRC-32"
        return None, Rejection("truncated", float(member.offset), f"the member {reason}")
    return data, None


def _unpack(file: BinaryIO, member: ZipMember) -> bytes:
    if member.method == _STORED:
        return file.read(member.num_bytes)
    decoder = _decoder(member.method)
    parts, num_bytes, left_bytes = [], 0, member.packed_bytes
    while left_bytes > 0 and not decoder.eof and num_bytes <= member.num_bytes:
        # zstd has no limit on how much it unpacks at once, see `decompress`.
        data = file.read(min(left_bytes, 1 << 10 if member.method == _ZSTD else _PIECE_BYTES))
        if not data:
            break
        left_bytes -= len(data)
        while True:
            want = member.num_bytes + 1 - num_bytes
            part = decoder.decompress(data) if member.method == _ZSTD else decoder.decompress(data, want)
            parts.append(part)
            num_bytes += len(part)
            data = decoder.unconsumed_tail if member.method == _DEFLATED else b""
            if num_bytes > member.num_bytes or not data:
                break
    return b"".join(parts)


def _decoder(method: int) -> Any:
    import bz2
    import lzma

    if method == _DEFLATED:
        return zlib.decompressobj(-15)
    if method == _BZIP2:
        return bz2.BZ2Decompressor()
    if method == _XZ:
        return lzma.LZMADecompressor(memlimit=128 << 20)
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=128 << 20).decompressobj()


def _damage_errors() -> tuple[type[Exception], ...]:
    import lzma

    import zstandard

    return (zlib.error, ValueError, EOFError, ArithmeticError, lzma.LZMAError, zstandard.ZstdError)


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
    if len(header) < _LOCAL_HEADER.size or header[:4] != _LOCAL_MAGIC:
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
