"""Readers of tar archives, plain or compressed, and of single compressed texts."""

from collections.abc import Iterator
from dataclasses import dataclass

from data_prep.documents import RawFile, Rejection
from data_prep.sources.archive_names import MemberNames
from data_prep.sources.decompress import (
    ByteStream,
    Codec,
    SeekableStream,
    StreamEnd,
    plain_pieces,
    unpacked_pieces,
)
from data_prep.sources.files import SourceFile
from data_prep.sources.limits import ReadLimits
from data_prep.sources.listed import unreadable
from data_prep.sources.stream_parts import StreamPart
from data_prep.sources.tar_headers import TarMember, tar_members
from data_prep.sources.units import printable_bytes


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
