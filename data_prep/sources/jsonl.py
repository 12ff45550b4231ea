"""JSONL, one JSON object per line; a file that is one JSON array is refused with one message."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, count, islice, takewhile
from typing import Any, BinaryIO, TypeVar

from cluster.errors import UserError
from cluster.storage import fingerprint
from data_prep.documents import RawFile, Rejection
from data_prep.sources.columns import column_mappings, refuse_missing_columns, refuse_without_content
from data_prep.sources.config import JsonlConfig
from data_prep.sources.decompress import (
    CODECS,
    PIECE_BYTES,
    Codec,
    StreamEnd,
    StreamPart,
    plain_pieces,
    stream_parts,
    unpacked_pieces,
)
from data_prep.sources.files import SourceFile, find_files
from data_prep.sources.limits import ReadLimits
from data_prep.sources.listed import unreadable
from data_prep.sources.records import RecordReader, TableFailure
from data_prep.sources.units import UNIT_BYTES, Reader, WorkUnit, join_small

Item = TypeVar("Item")
_BOM = b"\xef\xbb\xbf"
# The number of bytes examined, and of blanks before them.
MAX_BUFFERED_BYTES = UNIT_BYTES
_MAX_ELEMENTS = 1000
# A truncated literal or escape begins at most so many characters before the end.
_LONGEST_CUT_CHARS = 8
_BLANKS = re.compile(r"\s*")


def detect_array(pieces: Iterator[bytes]) -> tuple[bool, Iterator[bytes]]:
    """Return whether a file is one JSON array, to judge by its beginning, and an iterator of all its pieces.

    A list on a line of its own, or a broken line, is no such array. Usually consumes one piece; the iterator repeats
    the pieces that were consumed.
    """
    beginning = _Beginning()
    _, all_pieces = peek(pieces, beginning.add)
    return beginning.is_array(), all_pieces


def peek(items: Iterator[Item], is_enough: Callable[[Item], bool]) -> tuple[list[Item], Iterator[Item]]:
    """Return the first items, up to one for which `is_enough` is true, and an iterator of all items.

    An error that ends the items early (OSError, StreamEnd) is raised by the iterator, not here.
    """
    first: list[Item] = []
    failure: list[Exception] = []
    try:
        for item in items:
            first.append(item)
            if is_enough(item):
                break
    except (OSError, StreamEnd) as error:
        failure.append(error)
    return first, chain(first, _raise(failure), items)


def _raise(failure: list[Exception]) -> Iterator[Item]:
    for error in failure:
        raise error
    yield from ()


class _Beginning:
    """Collects the beginning of a file's text, from its first character that is not blank."""

    def __init__(self) -> None:
        self._text = bytearray()
        self._num_blanks = 0
        self._is_first = True
        self._is_truncated = False

    def add(self, piece: bytes) -> bool:
        """Add a piece and return whether no more are needed."""
        if self._is_first:
            piece, self._is_first = piece.removeprefix(_BOM), False
        if not self._text:
            text = piece.lstrip()
            self._num_blanks += len(piece) - len(text)
            piece = text
        self._text += piece[: MAX_BUFFERED_BYTES + 1 - len(self._text)]
        self._is_truncated = len(self._text) > MAX_BUFFERED_BYTES
        return (
            self._is_truncated
            or self._num_blanks > MAX_BUFFERED_BYTES
            or (len(self._text) > 0 and not self._text.startswith(b"["))
        )

    def is_array(self) -> bool:
        if not self._text.startswith(b"["):
            return False
        return _is_array(self._text[:MAX_BUFFERED_BYTES].decode(errors="replace"), self._is_truncated)


def _is_array(text: str, is_truncated: bool) -> bool:
    """Return whether a text that begins with "[" is one array. `is_truncated`: `text` is only its beginning."""
    try:
        end = json.JSONDecoder().raw_decode(text)[1]
    except RecursionError:
        return False
    except ValueError:
        pass
    else:
        if text[end:].strip() or not is_truncated:
            return not text[end:].strip()  # else the lines are lists
    end, num_elements = _elements(text)
    if num_elements is None:
        return False
    if is_truncated:
        # A list on a line may contain anything; an array that fills the file contains objects or has several lines.
        return text[1:].lstrip().startswith("{") or (num_elements > 0 and "\n" in text[:end])
    # The file itself is truncated. The lines of an array are not objects, because commas separate the objects.
    lines = text.split("\n")[1:_MAX_ELEMENTS]
    return num_elements > 0 and not any(map(is_object, lines[:-1]))


def is_object(line: str | bytes) -> bool:
    """Return whether the line is a JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _elements(text: str) -> tuple[int, int | None]:
    """Return how far the text is an array without its end, and the number of elements that a comma follows.

    The number is None if the text is something else before its end.
    """
    decode = json.JSONDecoder().raw_decode
    length = len(text.rstrip())
    position = 1
    for number in range(_MAX_ELEMENTS):
        position = _after_blanks(text, position)
        try:
            position = _after_blanks(text, decode(text, position)[1])
        except json.JSONDecodeError as error:
            is_at_end = error.msg.startswith("Unterminated string") or error.pos > length - _LONGEST_CUT_CHARS
            return position, number if is_at_end else None
        except RecursionError:
            return position, None
        if position >= length:
            return position, number
        if text[position] != ",":
            return position, None
        position += 1
    return position, _MAX_ELEMENTS


def _after_blanks(text: str, position: int) -> int:
    blanks = _BLANKS.match(text, position)
    return position if blanks is None else blanks.end()


# A column that the user names must occur in so many lines, within the first UNIT_BYTES.
_MAX_CHECKED_LINES = 1000
_ARRAY = Rejection("broken_record", 0.0, "one JSON array, not one JSON object per line")


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its newline. `data` is None if it is too long. `offset` is that of its first byte."""

    offset: int
    num_bytes: int
    data: bytes | None


def plan_jsonl(config: JsonlConfig, source: str) -> list[WorkUnit]:
    """Return units of work: byte ranges of plain files and parts of compressed ones.

    UserError if all files are empty, if a file lacks a column that the user names, if no file has a column of code, or
    if all files are JSON arrays. For these checks the beginnings of files are read, often one record, and usually of
    the first file only (of all, if the user names columns). One array among several files is found by its readers and
    becomes one row.
    """
    groups: list[list[WorkUnit]] = []
    mappings = column_mappings(config.preset, config.columns)
    files = find_files(config.urls)
    if all(file.num_bytes == 0 and not file.rejection and _codec(file) is None for file in files):
        raise UserError(f"source {source}: its files are empty (0 bytes): check `urls`")
    openable = [file for file in files if file.rejection is None]
    if openable and all(map(is_array_file, openable)):  # stops at the first file that is no array
        raise UserError(
            f"source {source}: {openable[0].label} is {_ARRAY.detail}: "
            "write each of its objects on a separate line (jq -c '.[]' FILE)"
        )
    if config.columns is None:
        beginnings = (record for file in openable for record in _first_records(file))
        refuse_without_content(beginnings, mappings, f"source {source}")
    for number, file in enumerate(files):
        if config.columns is not None and file.rejection is None:
            refuse_missing_columns(_first_records(file), config.columns, f"source {source}: {file.label}")
        records = RecordReader(mappings, config.repository or file.label, config.exclude)
        readers = _readers(file, records)
        settings = [[columns.model_dump() for columns in mappings], records.repository, config.exclude]
        units: list[WorkUnit] = []
        for part, reader in enumerate(readers):
            key = ["jsonl", file.label, file.version, settings, part, len(readers)]
            share = (file.num_bytes or 0) // len(readers)
            units.append(WorkUnit(source, f"{number} {file.label} {part}", share, fingerprint(key), reader))
        groups.append(units)
    return join_small(groups)


def is_array_file(file: SourceFile) -> bool:
    try:
        with file.open(sequential=True) as opened:
            return detect_array(_pieces(opened, _codec(file), ReadLimits()))[0]
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
    """Yield the objects at a file's beginning, as far as it can be read: the readers report what cannot."""
    limits = ReadLimits()
    try:
        with file.open(sequential=True) as opened:
            is_array, all_pieces = detect_array(_pieces(opened, _codec(file), limits))
            pieces = _first_bytes(iter(()) if is_array else all_pieces, UNIT_BYTES)
            for line in islice(split_lines(pieces, 0, limits.max_record_bytes), _MAX_CHECKED_LINES):
                try:
                    record = json.loads(_without_mark(line.offset, line.data or b"").decode())
                except (ValueError, RecursionError):
                    continue
                if isinstance(record, dict):
                    yield record
    except (OSError, StreamEnd):
        return


def _first_bytes(pieces: Iterator[bytes], num_bytes: int) -> Iterator[bytes]:
    """Yield pieces up to `num_bytes` bytes in all, because a file may be one very long line."""
    while num_bytes > 0 and (piece := next(pieces, b"")):
        yield piece[:num_bytes]
        num_bytes -= len(piece)


def _pieces(file: BinaryIO, codec: Codec | None, limits: ReadLimits) -> Iterator[bytes]:
    return plain_pieces(file) if codec is None else unpacked_pieces(file, codec, limits)


def _codec(file: SourceFile) -> Codec | None:
    return next((codec for ending, codec in CODECS.items() if file.basename.endswith(ending)), None)


@dataclass(frozen=True, slots=True)
class JsonlRange:
    """The reader of the lines of a plain file whose first byte is in [start, end)."""

    file: SourceFile
    records: RecordReader
    start: int
    end: int

    def read(self, limits: ReadLimits) -> Iterator[RawFile]:
        position = self.start
        try:
            with self.file.open() as file:
                is_array, lines = self._inspect(file, limits.max_record_bytes)
                if is_array and self.start == 0:
                    yield _array_row(self.file.label, self.records)
                for line in () if is_array else lines:
                    position = line.offset + line.num_bytes + 1
                    yield from _line_files(line, self.file.label, self.records, limits)
        except OSError as error:
            if position < self.end:  # else the next line belongs to the next range, which reports it
                yield self.records.rejection_row(f"{self.file.label}#{position}-", unreadable(error))

    def _inspect(self, file: BinaryIO, max_bytes: int) -> tuple[bool, Iterator[Line]]:
        """Return whether the file is one array, and the lines of this range.

        Two consecutive lines of an array are never both objects, because a comma separates the objects. So the file's
        beginning is examined only if the first two lines of this range are not objects.
        """
        if self.start == 0:
            is_array, pieces = detect_array(plain_pieces(file))
            return is_array, self._until_end(split_lines(pieces, 0, max_bytes))
        number = count(1)
        first, lines = peek(
            (line for line in self._lines(file, max_bytes) if line.data is None or line.data.strip()),
            lambda line: not _is_object(line) or next(number) == 2,
        )
        is_jsonl = len(first) == 2 and all(map(_is_object, first))
        return bool(first) and not is_jsonl and is_array_file(self.file), lines

    def _lines(self, file: BinaryIO, max_bytes: int) -> Iterator[Line]:
        first = first_line_start(file, self.start, self.end)
        if first is not None:
            file.seek(first)
            yield from self._until_end(split_lines(plain_pieces(file), first, max_bytes))

    def _until_end(self, lines: Iterator[Line]) -> Iterator[Line]:
        return takewhile(lambda line: line.offset < self.end, lines)


@dataclass(frozen=True, slots=True)
class JsonlStream:
    """The reader of the lines of a compressed or unseekable file that begin in a part's chunks."""

    file: SourceFile
    codec: Codec | None
    records: RecordReader
    part: StreamPart

    def read(self, limits: ReadLimits) -> Iterator[RawFile]:
        label = self.file.label
        try:
            with self.file.open(sequential=True) as file:
                is_array, pieces = detect_array(_pieces(file, self.codec, limits))
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
                yield self.records.rejection_row(f"{label}#end", rejection)
        except OSError as error:
            # Each part reads the file separately, so no other part reports what this one could not read.
            place = f"{label}#end" + (f" of part {self.part.number}" if self.part.number else "")
            yield self.records.rejection_row(place, unreadable(error))


def _array_row(label: str, records: RecordReader) -> RawFile:
    """Return the row for a file that is one array."""
    return records.rejection_row(f"{label}#end", _ARRAY)


def _is_object(line: Line) -> bool:
    return line.data is not None and is_object(line.data)


def first_line_start(file: BinaryIO, start: int, end: int) -> int | None:
    """Return the first byte in [start, end) at which a line begins; None if none does."""
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
    """Yield the lines of a text that comes in pieces; the last line need not have a newline.

    Of a line longer than `max_bytes` only the length is kept. A line that is cut off by StreamEnd is not yielded.
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
        yield records.rejection_row(location, Rejection("file_size", float(line.num_bytes)), line.num_bytes)
        return
    data = _without_mark(line.offset, line.data)
    if not data or data.isspace():
        return
    try:
        record = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        rejection = Rejection("broken_record", float(line.offset), reason)
        yield records.rejection_row(location, rejection, line.num_bytes)
        return
    yield from records.files(record, location, line.offset, limits)


def _without_mark(offset: int, data: bytes) -> bytes:
    return data.removeprefix(_BOM) if offset == 0 else data
