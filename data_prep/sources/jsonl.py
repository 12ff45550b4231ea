"""JSONL: one JSON object per line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice, takewhile
from typing import Any, BinaryIO

from cluster.errors import UserError
from cluster.storage import fingerprint
from data_prep.documents import RawFile, Rejection
from data_prep.sources.config import JsonlConfig
from data_prep.sources.decompress import CODECS, PIECE_BYTES, Codec, StreamEnd, plain_pieces, unpacked_pieces
from data_prep.sources.files import SourceFile, find_files
from data_prep.sources.json_array import begins_array, is_object, peeked
from data_prep.sources.limits import ReadLimits
from data_prep.sources.listed import unreadable
from data_prep.sources.named_columns import refuse_missing_columns, refuse_without_content
from data_prep.sources.presets import column_mappings
from data_prep.sources.records import RecordReader, TableFailure
from data_prep.sources.stream_parts import StreamPart, stream_parts
from data_prep.sources.units import UNIT_BYTES, Reader, WorkUnit, join_small

_BOM = b"\xef\xbb\xbf"
# Where a column that the user names must be met with, within the first UNIT_BYTES.
_LOOKED_AT_LINES = 1000
_ARRAY = Rejection("broken_record", 0.0, "one JSON array, not one JSON object per line")


@dataclass(frozen=True, slots=True)
class Line:
    """`data` is without its newline; None where it is longer than wanted. `offset` is its first byte's."""

    offset: int
    num_bytes: int
    data: bytes | None


def plan_jsonl(config: JsonlConfig, source: str) -> list[WorkUnit]:
    """Byte ranges of plain files, parts of compressed ones; UserError if all files have no bytes.

    Also if a file has none of a column that the user names, or no file one that holds code: their beginnings are read
    for that, often one record; and if all files are JSON arrays. Of several files, one that is an array is one row: the
    readers see to that, so that only the first file is opened here (all, where the user names columns).
    """
    groups: list[list[WorkUnit]] = []
    mappings = column_mappings(config.preset, config.columns)
    files = find_files(config.urls)
    if all(file.num_bytes == 0 and not file.rejection and _codec(file) is None for file in files):
        raise UserError(f"source {source}: its files are empty (0 bytes): check `urls`")
    openable = [file for file in files if file.rejection is None]
    if openable and all(map(_is_array, openable)):  # asks no file after one that is none
        raise UserError(
            f"source {source}: {openable[0].label} is {_ARRAY.detail}: "
            "write each of its objects on a line of its own (jq -c '.[]' FILE)"
        )
    if config.columns is None:
        beginnings = (record for file in openable for record in _first_records(file))
        refuse_without_content(beginnings, mappings, f"source {source}")
    for number, file in enumerate(files):
        if config.columns is not None and file.rejection is None:
            refuse_missing_columns(_first_records(file), config.columns, f"source {source}: {file.label}")
        records = RecordReader(mappings, config.repository or file.label, config.exclude)
        readers = _readers(file, records)
        told = [[columns.model_dump() for columns in mappings], records.repository, config.exclude]
        units: list[WorkUnit] = []
        for part, reader in enumerate(readers):
            key = ["jsonl", file.label, file.version, told, part, len(readers)]
            share = (file.num_bytes or 0) // len(readers)
            units.append(WorkUnit(source, f"{number} {file.label} {part}", share, fingerprint(key), reader))
        groups.append(units)
    return join_small(groups)


def _is_array(file: SourceFile) -> bool:
    try:
        with file.open(sequential=True) as opened:
            return begins_array(_pieces(opened, _codec(file), ReadLimits()))[0]
    except OSError:
        return False


def _readers(file: SourceFile, records: RecordReader) -> list[Reader]:
    if file.rejection is not None:
        return [TableFailure(file.label, records, file.rejection, 0)]
    codec = _codec(file)
    if codec is None and file.seekable and file.num_bytes is not None:
        starts = range(0, max(1, file.num_bytes), UNIT_BYTES)
        return [JsonlRange(file, records, start, start + UNIT_BYTES) for start in starts]
    return [JsonlStream(file, codec, records, part) for part in stream_parts(file.num_bytes)]


def _first_records(file: SourceFile) -> Iterator[dict[str, Any]]:
    """The objects of a file's beginning, as far as it can be read: the readers tell what cannot."""
    limits = ReadLimits()
    try:
        with file.open(sequential=True) as opened:
            is_array, all_pieces = begins_array(_pieces(opened, _codec(file), limits))
            pieces = _first_bytes(iter(()) if is_array else all_pieces, UNIT_BYTES)
            for line in islice(split_lines(pieces, 0, limits.max_record_bytes), _LOOKED_AT_LINES):
                try:
                    record = json.loads(_without_mark(line.offset, line.data or b"").decode())
                except (ValueError, RecursionError):
                    continue
                if isinstance(record, dict):
                    yield record
    except (OSError, StreamEnd):
        return


def _first_bytes(pieces: Iterator[bytes], num_bytes: int) -> Iterator[bytes]:
    """A file may be one endless line: that is not read to its end."""
    while num_bytes > 0 and (piece := next(pieces, b"")):
        yield piece[:num_bytes]
        num_bytes -= len(piece)


def _pieces(file: BinaryIO, codec: Codec | None, limits: ReadLimits) -> Iterator[bytes]:
    return plain_pieces(file) if codec is None else unpacked_pieces(file, codec, limits)


def _codec(file: SourceFile) -> Codec | None:
    return next((codec for ending, codec in CODECS.items() if file.basename.endswith(ending)), None)


@dataclass(frozen=True, slots=True)
class JsonlRange:
    """The lines of a plain file whose first byte is in [start, end)."""

    file: SourceFile
    records: RecordReader
    start: int
    end: int

    def read(self, limits: ReadLimits) -> Iterator[RawFile]:
        position = self.start
        try:
            with self.file.open() as file:
                is_array, lines = self._looked_at(file, limits.max_record_bytes)
                if is_array and self.start == 0:
                    yield _array_row(self.file.label, self.records)
                for line in () if is_array else lines:
                    position = line.offset + line.num_bytes + 1
                    yield from _line_files(line, self.file.label, self.records, limits)
        except OSError as error:
            if position < self.end:  # else the next line is the next range's to tell
                yield self.records.rejected(f"{self.file.label}#{position}-", unreadable(error))

    def _looked_at(self, file: BinaryIO, max_bytes: int) -> tuple[bool, Iterator[Line]]:
        """Whether the file is one array, and the lines of this range.

        Two lines of an array that follow each other are never objects both, for a comma stands between those. So the
        file's beginning is only asked where this range's lines are not what they should be.
        """
        if self.start == 0:
            is_array, pieces = begins_array(plain_pieces(file))
            return is_array, self._until_end(split_lines(pieces, 0, max_bytes))
        number = count(1)
        first, lines = peeked(
            (line for line in self._lines(file, max_bytes) if not _is_blank(line)),
            lambda line: not _is_object(line) or next(number) == 2,
        )
        is_jsonl = len(first) == 2 and all(map(_is_object, first))
        return bool(first) and not is_jsonl and _is_array(self.file), lines

    def _lines(self, file: BinaryIO, max_bytes: int) -> Iterator[Line]:
        first = first_line_start(file, self.start, self.end)
        if first is not None:
            file.seek(first)
            yield from self._until_end(split_lines(plain_pieces(file), first, max_bytes))

    def _until_end(self, lines: Iterator[Line]) -> Iterator[Line]:
        return takewhile(lambda line: line.offset < self.end, lines)


@dataclass(frozen=True, slots=True)
class JsonlStream:
    """The lines of a compressed (or unseekable) file that begin in a part's chunks."""

    file: SourceFile
    codec: Codec | None
    records: RecordReader
    part: StreamPart

    def read(self, limits: ReadLimits) -> Iterator[RawFile]:
        label = self.file.label
        try:
            with self.file.open(sequential=True) as file:
                is_array, pieces = begins_array(_pieces(file, self.codec, limits))
                if is_array:
                    if self.part.owns(0):
                        yield _array_row(label, self.records)
                    return
                for line in split_lines(pieces, 0, limits.max_record_bytes):
                    if self.part.owns(line.offset):
                        yield from _line_files(line, label, self.records, limits)
        except StreamEnd as end:
            if self.part.owns(end.offset):
                rejection = Rejection(end.rule, float(end.offset), end.reason)
                yield self.records.rejected(f"{label}#end", rejection)
        except OSError as error:
            # Each part reads for itself: nobody else tells what this one could not see.
            place = f"{label}#end" + (f" of part {self.part.number}" if self.part.number else "")
            yield self.records.rejected(place, unreadable(error))


def _array_row(label: str, records: RecordReader) -> RawFile:
    """Stands for all of a file that is one array."""
    return records.rejected(f"{label}#end", _ARRAY)


def _is_blank(line: Line) -> bool:
    return line.data is not None and (not line.data or line.data.isspace())


def _is_object(line: Line) -> bool:
    return line.data is not None and is_object(line.data)


def first_line_start(file: BinaryIO, start: int, end: int) -> int | None:
    """The first byte in [start, end) at which a line begins; None if none does."""
    if start == 0:
        return 0
    position = start - 1
    file.seek(position)
    while position < end - 1:
        data = file.read(min(PIECE_BYTES, end - 1 - position))
        if not data:
            return None
        newline = data.find(b"\n")
        if newline >= 0:
            return position + newline + 1
        position += len(data)
    return None


def split_lines(pieces: Iterator[bytes], offset: int, max_bytes: int) -> Iterator[Line]:
    """Lines of a text that comes in pieces, the last one with or without its newline.

    Of a line longer than `max_bytes` only the length is kept. What StreamEnd cuts off is no line.
    """
    held: list[bytes] = []
    held_bytes = 0
    for piece in pieces:
        *parts, rest = piece.split(b"\n")
        for part in parts:
            num_bytes = held_bytes + len(part)
            data = None if num_bytes > max_bytes else b"".join((*held, part))
            yield Line(offset, num_bytes, data)
            offset += num_bytes + 1
            held, held_bytes = [], 0
        held_bytes += len(rest)
        if held_bytes > max_bytes:
            held = []
        elif rest:
            held.append(rest)
    if held_bytes:
        yield Line(offset, held_bytes, None if held_bytes > max_bytes else b"".join(held))


def _line_files(line: Line, label: str, records: RecordReader, limits: ReadLimits) -> Iterator[RawFile]:
    location = f"{label}#{line.offset}"
    if line.data is None:
        yield records.rejected(location, Rejection("file_size", float(line.num_bytes)), line.num_bytes)
        return
    data = _without_mark(line.offset, line.data)
    if not data or data.isspace():
        return
    try:
        record = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        rejection = Rejection("broken_record", float(line.offset), reason)
        yield records.rejected(location, rejection, line.num_bytes)
        return
    yield from records.files(record, location, line.offset, limits)


def _without_mark(offset: int, data: bytes) -> bytes:
    return data.removeprefix(_BOM) if offset == 0 else data
