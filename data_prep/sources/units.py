"""Units of work: what one task reads of a source.

The rules by which a source yields a file without its bytes (`RawFile.rejection`):

| rule            | meaning; value; detail                                                                      |
| --------------- | ------------------------------------------------------------------------------------------- |
| `excluded`      | a pattern of the config's `exclude` matches its repository or path; -; the pattern           |
| `vendored`      | other projects' code or a build's output, unless `keep_vendored`; -; the sign (`vendored`)   |
| `suffix`        | none of the config's `suffixes`; a licence file is read for its licence all the same        |
| `budget`        | its repository does not fit into the config's `max_total_bytes`                              |
| `file_size`     | smaller or larger than the limits; its bytes; a licence file is read as above               |
| `readable`      | the system refused, for a second of retries (`local_retries`); errno; its message            |
| `link`          | symbolic or hard link, never followed; -; its target                                        |
| `submodule`     | a git submodule: another repository's commit; -; the commit                                  |
| `not_regular`   | FIFO, socket or device, never opened; a folder that a pattern matches; -; which             |
| `unsafe_path`   | absolute, `..`, drive letter or NUL in an archive's member name                              |
| `bomb`          | the limits of an archive (Parquet: row group) are reached, here or before; bytes; the limit  |
| `truncated`     | an archive, stream or Parquet file is cut or damaged here; byte offset; what was found       |
| `encrypted`     | a zip's member has a password                                                                |
| `unsupported`   | packed by a method that is not supported, or a sparse member; -; the method                  |
| `broken_record` | not JSON, or a column of the wrong type; byte offset (Parquet: row); what was found          |
| `no_content`    | a record without text, as in lists of identifiers                                            |
| `decodable`     | a record's text has lone surrogates, which UTF-8 cannot encode                               |

Folders named `.git`, `.hg` and `.svn` are not entered, and their files are not listed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster.errors import UserError
from cluster.storage import fingerprint
from data_prep.documents import RawFile, Rejection
from data_prep.sources.limits import ReadLimits

UNIT_BYTES = 8 << 20
"""Roughly what a unit reads: small enough that small corpora are divided, large enough to be worth a task."""
_UNIT_ITEMS = 4096
_JOINED_UNITS = 256

VCS_FOLDERS = frozenset({".git", ".hg", ".svn"})
_UNREADABLE_RULES = frozenset(
    {"readable", "truncated", "bomb", "encrypted", "unsupported", "broken_record", "no_content", "decodable"}
)


class Reader(Protocol):
    """Reads a unit's part of a source; immutable and picklable."""

    def read(self, limits: ReadLimits) -> Iterator[RawFile]:
        """Yield every file of this part, in a fixed order."""
        ...


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """One task's share of a source.

    `name` is printable, unique in its source and the same on every machine. `num_bytes` are bytes in the source, for
    progress and load balance. `signature` (hex) changes when the unit's input may have changed.
    """

    source: str
    name: str
    num_bytes: int
    signature: str
    reader: Reader


def cut_runs(sizes_bytes: Sequence[int]) -> Iterator[slice]:
    """Yield consecutive runs of items of about UNIT_BYTES; none is empty."""
    start, num_bytes = 0, 0
    for position, size_bytes in enumerate(sizes_bytes):
        if position > start and (num_bytes >= UNIT_BYTES or position - start >= _UNIT_ITEMS):
            yield slice(start, position)
            start, num_bytes = position, 0
        num_bytes += size_bytes
    if start < len(sizes_bytes):
        yield slice(start, len(sizes_bytes))


@dataclass(frozen=True, slots=True)
class JoinedReader:
    """Reads with several readers, one after the other."""

    readers: tuple[Reader, ...]

    def read(self, limits: ReadLimits) -> Iterator[RawFile]:
        for reader in self.readers:
            yield from reader.read(limits)


def join_small(groups: Iterable[Sequence[WorkUnit]]) -> list[WorkUnit]:
    """Return the units of all groups (archives, tables, repositories) in order, with small groups joined.

    Consecutive groups of one unit each that are small together become one unit: a task per small archive would cost
    more than its work.
    """
    joined: list[WorkUnit] = []
    waiting: list[WorkUnit] = []
    for group in groups:
        num_bytes = sum(unit.num_bytes for unit in (*waiting, *group))
        if waiting and (len(group) != 1 or num_bytes > UNIT_BYTES or len(waiting) == _JOINED_UNITS):
            joined.append(_join(waiting))
            waiting = []
        if len(group) == 1:
            waiting.append(group[0])
        else:
            joined += group
    return [*joined, _join(waiting)] if waiting else joined


def _join(units: Sequence[WorkUnit]) -> WorkUnit:
    if len(units) == 1:
        return units[0]
    name = f"{units[0].name} and {len(units) - 1} more"
    signature = fingerprint([unit.signature for unit in units])
    reader = JoinedReader(tuple(unit.reader for unit in units))
    return WorkUnit(units[0].source, name, sum(unit.num_bytes for unit in units), signature, reader)


def printable(name: str) -> str:
    """Return a file name with bytes that are not UTF-8 escaped, so that it can be stored as text."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def printable_bytes(name: bytes) -> str:
    """Return a file name as text, with bytes that are not UTF-8 escaped."""
    return name.decode("utf-8", "backslashreplace")


def rejection_key(rejection: Rejection | None) -> list[object] | None:
    """Return a rejection as JSON values, for signatures."""
    return None if rejection is None else [rejection.rule, rejection.value, rejection.detail]


def refuse_unreadable(source: str, num_by_rule: Mapping[str | None, int]) -> None:
    """Raise UserError if a source listed files and none could be read.

    `num_by_rule` counts the source's rows by the rule that dropped them; None is for all whose bytes were read, kept
    by the filters or not. To be called once per source after reading.
    """
    total = sum(num_by_rule.values())
    unreadable: Iterable[str] = sorted(rule for rule in num_by_rule if rule in _UNREADABLE_RULES)
    if total and sum(num_by_rule[rule] for rule in unreadable) == total:
        counts = ", ".join(f"{rule} {num_by_rule[rule]:,}" for rule in unreadable)
        raise UserError(
            f"source {source}: none of its files could be read ({counts}): "
            "check that its kind and columns match the files, or remove it from the corpus"
        )
