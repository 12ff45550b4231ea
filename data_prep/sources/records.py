"""Conversion of a table's records (JSONL, Parquet) to files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from data_prep.documents import RawFile, Rejection
from data_prep.sources.config import ColumnsConfig
from data_prep.sources.limits import ReadLimits


class BrokenRecord(Exception):
    """A column has the wrong type."""


@dataclass(frozen=True, slots=True)
class RecordReader:
    """Reads the records of one table file.

    `repository` is that of records that name none. Of several `mappings`, the first whose content (or list of files)
    a record has is used.
    """

    mappings: tuple[ColumnsConfig, ...]
    repository: str
    exclude: tuple[str, ...]

    def files(self, record: Any, location: str, position: int, limits: ReadLimits) -> Iterator[RawFile]:
        """Yield the files of a record; a record that is broken or has none yields one row with the reason.

        `location` is that of the record; `position` is its byte or row, the value of its rejection.
        """
        try:
            yield from self._files(record, location, limits)
        except BrokenRecord as error:
            yield self.rejection_row(location, Rejection("broken_record", float(position), str(error)))

    def rejection_row(self, location: str, rejection: Rejection, num_bytes: int = 0) -> RawFile:
        """Return the row of a record of which only the rejection is known."""
        return RawFile(self.repository, _default_path(location), location, num_bytes, rejection=rejection)

    def _files(self, record: Any, location: str, limits: ReadLimits) -> Iterator[RawFile]:
        if not isinstance(record, dict):
            raise BrokenRecord(f"the record is {_kind(record)}, not an object")
        for columns in self.mappings:
            if columns.files is not None and isinstance(
                listed := column_value(record, columns.files), Sequence
            ):
                yield from self._listed(listed, record, columns, location, limits)
                return
        columns = next(
            (c for c in self.mappings if column_value(record, c.content) is not None), self.mappings[0]
        )
        yield self._file(record, {}, columns, location, limits)

    def _listed(
        self,
        listed: Any,
        record: Mapping[str, Any],
        columns: ColumnsConfig,
        location: str,
        limits: ReadLimits,
    ) -> Iterator[RawFile]:
        if isinstance(listed, str):
            raise BrokenRecord(f"column {columns.files} is a text, not a list of files")
        for number, item in enumerate(listed):
            place = f"{location}.{number}"
            if isinstance(item, dict):
                try:
                    yield self._file(item, record, columns, place, limits)
                    continue
                except BrokenRecord as error:
                    reason = str(error)
            else:
                reason = f"file {number} of the list is {_kind(item)}, not an object"
            yield self.rejection_row(place, Rejection("broken_record", float(number), reason))
        if not listed:
            yield self.rejection_row(location, Rejection("no_content", None, "the list of files is empty"))

    def _file(
        self,
        record: Mapping[str, Any],
        around: Mapping[str, Any],
        columns: ColumnsConfig,
        location: str,
        limits: ReadLimits,
    ) -> RawFile:
        def text(column: str | None) -> str | None:
            return _text(_either(record, around, column), column)

        repository = text(columns.repository) or self.repository
        path = text(columns.path) or _default_path(location)
        content = text(columns.content)
        stars = _count(_either(record, around, columns.stars), columns.stars)
        licence = _licence(_either(record, around, columns.licence), columns.licence)
        language = text(columns.language)
        data: bytes | None = None
        num_bytes = 0
        if content is None:
            rejection: Rejection | None = Rejection("no_content", None, f"no column {columns.content}")
        else:
            data, rejection = _encode(content, limits)
            num_bytes = len(content) if data is None else len(data)
        repository, path = _storable(repository), _storable(path)
        pattern = excluded_by(repository, path, self.exclude)
        if pattern is not None:
            rejection = Rejection("excluded", None, pattern)
        if pattern is not None or not limits.wants(path, num_bytes):
            data = None
        return RawFile(repository, path, location, num_bytes, data, rejection, language, licence, stars)


@dataclass(frozen=True, slots=True)
class TableFailure:
    """The reader of a table file that must not be opened or whose footer cannot be read: it yields one row."""

    label: str
    records: RecordReader
    rejection: Rejection
    num_bytes: int

    def read(self, limits: ReadLimits) -> Iterator[RawFile]:
        yield self.records.rejection_row(f"{self.label}#end", self.rejection, self.num_bytes)


def excluded_by(repository: str, path: str, patterns: Sequence[str]) -> str | None:
    """Return the first pattern that matches the repository or the path; None if none does."""
    return next((p for p in patterns if fnmatchcase(repository, p) or fnmatchcase(path, p)), None)


def _encode(content: str, limits: ReadLimits) -> tuple[bytes | None, Rejection | None]:
    try:
        data = content.encode()
    except UnicodeEncodeError:
        return None, Rejection("decodable", None, "lone surrogate")
    return data, limits.size_rejection(len(data))


def _default_path(location: str) -> str:
    return "record " + location.rpartition("#")[2]


def _storable(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()


def column_value(record: Mapping[str, Any], column: str | None) -> Any:
    """Return a column's value; dots lead into nested objects unless a column has the full name."""
    if column is None:
        return None
    if column in record or "." not in column:
        return record.get(column)
    value: Any = record
    for name in column.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _either(record: Mapping[str, Any], around: Mapping[str, Any], column: str | None) -> Any:
    value = column_value(record, column)
    return column_value(around, column) if value is None else value


def _text(value: Any, column: str | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise BrokenRecord(f"column {column} is {_kind(value)}, not a text")


def _licence(value: Any, column: str | None) -> str | None:
    """Return the licence; those of a list all apply, so they are joined by AND."""
    if isinstance(value, list | tuple):
        names = sorted({name for item in value if (name := _text(item, column))})
        return _storable(" AND ".join(names)) if names else None
    text = _text(value, column)
    return _storable(text) if text else None


def _count(value: Any, column: str | None) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise BrokenRecord(f"column {column} is {_kind(value)}, not a number")
    try:
        count = int(value)
    except OverflowError:
        raise BrokenRecord(f"column {column} is infinite") from None
    if not -(1 << 63) <= count < 1 << 63:
        raise BrokenRecord(f"column {column} is out of range")
    return count


def _kind(value: Any) -> str:
    kinds = {
        "dict": "an object",
        "list": "a list",
        "str": "a text",
        "bool": "a truth value",
        "bytes": "bytes",
    }
    return kinds.get(type(value).__name__, "a number" if isinstance(value, int | float) else "empty")
