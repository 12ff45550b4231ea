"""Which parts of a file `permcode score` is asked for."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cluster.errors import UserError
from pipeline.text_files import TextFile

if TYPE_CHECKING:
    from pretrain.inference.text_ranges import ByteRange

_LINES = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_BYTES = re.compile(r"(\d{1,18}):(\d{1,18})")


@dataclass(frozen=True)
class NamedRange:
    """A part of a file, and how its user named it: `pattern` holds `first` and `last`."""

    pattern: str
    first: int
    last: int
    bytes: "ByteRange"

    @property
    def name(self) -> str:
        """ "lines 10-20" or "bytes 100:200"."""
        return self.pattern.format(self.first, self.last)


def ranges_of(file: TextFile, lines: Sequence[str], bytes_: Sequence[str]) -> list[NamedRange]:
    """The parts that `lines` ("10-20,7") or `bytes_` ("100:200") name, in the order of the text.

    Those that overlap are one, those that only touch stay apart. Raises UserError for what is no part of the file.
    """
    if lines and bytes_:
        raise UserError("say which parts to score in one way: --lines or --bytes")
    return _united([*_of_lines(file, lines), *_of_bytes(file, bytes_)])


def _of_lines(file: TextFile, values: Sequence[str]) -> Iterator[NamedRange]:
    from pretrain.inference.text_ranges import bytes_of_lines

    wanted = "give FIRST-LAST, such as 10-20, or one line's number; several with commas"
    for match in _matches("--lines", values, _LINES, wanted):
        first, last = int(match[1]), int(match[2] or match[1])
        yield NamedRange("lines {}-{}", first, last, bytes_of_lines(file.data, first, last, file.name))


def _of_bytes(file: TextFile, values: Sequence[str]) -> Iterator[NamedRange]:
    from pretrain.inference.text_ranges import ByteRange

    wanted = "give START:END, such as 100:200; END is not included; several with commas"
    for match in _matches("--bytes", values, _BYTES, wanted):
        part = ByteRange(int(match[1]), int(match[2]))
        part.check_within(len(file.data), file.name)
        yield NamedRange("bytes {}:{}", part.start, part.end, part)


def _matches(
    option: str, values: Sequence[str], pattern: re.Pattern[str], wanted: str
) -> Iterator[re.Match[str]]:
    for value in values:
        for part in value.split(","):
            match = pattern.fullmatch(part.strip())
            if match is None:
                raise UserError(f"{option} {value}: {wanted}")
            yield match


def _united(ranges: Iterable[NamedRange]) -> list[NamedRange]:
    """Sorted, without overlaps."""
    from pretrain.inference.text_ranges import ByteRange

    united: list[NamedRange] = []
    for one in sorted(ranges, key=lambda one: one.bytes.start):
        if united and one.bytes.start < united[-1].bytes.end:
            before = united.pop()
            part = ByteRange(before.bytes.start, max(before.bytes.end, one.bytes.end))
            one = replace(before, last=max(before.last, one.last), bytes=part)
        united.append(one)
    return united
