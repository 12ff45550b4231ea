"""JSONL: one JSON object per line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, BinaryIO

from cluster.errors import UserError
from cluster.storage import fingerprint
from data_prep.documents import RawFile, Rejection
from data_prep.sources.config import JsonlConfig
from data_prep.sources.decompress import CODECS, PIECE_BYTES, Codec, StreamEnd, plain_pieces, unpacked_pieces
from data_prep.sources.files import SourceFile, find_files
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
_ONE_ARRAY = "one JSON array, not one JSON object per line"


@dataclass(frozen=True, slots=True)
class Line:
    """`data` is without its newline; None where it is longer than wanted. `offset` is its first byte's."""

    offset: int
    num_bytes: int
    data: bytes | None


def plan_jsonl(config: JsonlConfig, source: str) -> list[WorkUnit]:
    """Byte ranges of plain files, parts of compressed ones; UserError if all files have no bytes.

    Also if a file has none of a column that the user names, or no file one that holds code: their beginnings are read
    for that, often one record; and if all files are JSON arrays. Of several files, one that is an array is one row.
    """
    groups: list[list[WorkUnit]] = []
    mappings = column_mappings(config.preset, config.columns)
    files = find_files(config.urls)
    if all(file.num_bytes == 0 and not file.rejection and _codec(file) is None for file in files):
        raise UserError(f"source {source}: its files are empty (0 bytes): check `urls`")
    files = [_refused_if_array(file) for file in files]
    if all(file.rejection is not None and file.rejection.detail == _ONE_ARRAY for file in files):
        raise UserError(
            f"source {source}: {files[0].label} is {_ONE_ARRAY}: "
            "write each of its objects on a line of its own (jq -c '.[]' FILE)"
        )
    if config.columns is None:
        beginnings = (record for file in files if file.rejection is None for record in _first_records(file))
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


def _refused_if_array(file: SourceFile) -> SourceFile:
    if file.rejection is not None or not _is_array(file):
        return file
    return replace(file, rejection=Rejection("broken_record", 0.0, _ONE_ARRAY))


def _is_array(file: SourceFile) -> bool:
    """Whether the file is one JSON array, as far as its beginning tells: not where a line is a list or is broken."""
    try:
        with file.open(sequential=True) as opened:
            pieces = _first_bytes(_pieces(opened, _codec(file), ReadLimits()), UNIT_BYTES)
            first = next(pieces, b"").removeprefix(_BOM).lstrip()
            if not first.startswith(b"["):
                return False
            text = (first + b"".join(pieces)).decode(errors="replace")
    except (OSError, StreamEnd):
        return False
    whole = _json_at(text, 0)
    if whole is not None:
        return not text[whole:].strip()
    element = _json_at(text, len(text) - len(text[1:].lstrip()))
    if element is None or not text[element:].lstrip().startswith(","):
        return False
    # It is cut, here or in itself: the lines of an array are no objects, for commas stand between those.
    lines = text.split("\n")[1:_LOOKED_AT_LINES]
    return not any(line.startswith("{") and _json_at(line, 0) == len(line.rstrip()) for line in lines[:-1])


def _json_at(text: str, start: int) -> int | None:
    """Where the JSON value that begins at `start` ends; None if none does."""
    try:
        return json.JSONDecoder().raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return None


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
            pieces = _first_bytes(_pieces(opened, _codec(file), limits), UNIT_BYTES)
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
            for line in self._lines(limits.max_record_bytes):
                position = line.offset + line.num_bytes + 1
                yield from _line_files(line, self.file.label, self.records, limits)
        except OSError as error:
            if position < self.end:  # else the next line is the next range's to tell
                yield self.records.rejected(f"{self.file.label}#{position}-", unreadable(error))

    def _lines(self, max_bytes: int) -> Iterator[Line]:
        with self.file.open() as file:
            first = first_line_start(file, self.start, self.end)
            if first is None:
                return
            file.seek(first)
            for line in split_lines(plain_pieces(file), first, max_bytes):
                if line.offset >= self.end:
                    return
                yield line


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
                pieces = _pieces(file, self.codec, limits)
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
