"""Infilling: fill a hole in a file, which was a part of a line, a line, or several lines.

The items come from a corpus' held-out documents. A pair's source is the text before the hole, its suffix the text after
it. Every metric is reported for all holes and by size; keys end in the size. The headline metric is exact match.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveInt, field_validator

from finetune.formats.pair_files import PairSource
from finetune.metrics.edit import edit_similarity
from finetune.metrics.exact import exact_match
from finetune.metrics.measured import Measured
from finetune.modalities.base import ModalityName, Source
from finetune.modalities.writing import Pair, WritingData
from finetune.syntax import prose_lines
from finetune.tasks.base import TaskConfigBase
from finetune.tasks.derived import derived_splits
from finetune.tasks.line_completion import cut_lines
from finetune.tasks.writing import references

Hole = Literal["part", "line", "lines"]
_MAX_LINES = 5


class InfillingConfig(PairSource, TaskConfigBase):
    """The settings of infilling. There are no files: all items come from the corpus."""

    modality: ClassVar[ModalityName] = "write"
    has_suffix: ClassVar[bool] = True

    kind: Literal["infilling"] = "infilling"
    folder: None = None
    test: Literal["corpus"] = "corpus"
    source: str = "before"
    target: str = "hole"
    language: str = "Python"
    """The language of the documents."""
    holes: tuple[Hole, ...] = ("part", "line", "lines")
    """The sizes of holes, sampled uniformly."""
    before_characters: PositiveInt = 1200
    """The maximum length of the text before the hole."""
    after_characters: PositiveInt = 600
    """The maximum length of the text after the hole."""
    per_document: PositiveInt = 6
    """The maximum number of holes in one document; every item has one of them."""

    @field_validator("holes")
    @classmethod
    def _some(cls, value: tuple[Hole, ...]) -> tuple[Hole, ...]:
        if not value or len(set(value)) != len(value):
            raise ValueError("must name each size once, and at least one")
        return value

    def build(self) -> "Infilling":
        """Build the task. Raise UserError if the settings do not fit together."""
        return Infilling(self)


class Infilling:
    """The WritingTask of an `InfillingConfig`."""

    reads_corpus = True

    def __init__(self, config: InfillingConfig) -> None:
        self.config = config

    def files(self) -> list[Path]:
        """Return no files: the corpus has its own fingerprint."""
        return []

    def load(self, source: Source) -> WritingData:
        """Make holes in the corpus' documents. Raise UserError if there is no corpus, or it is too small."""
        train, valid, test = derived_splits(
            source, self.config, self.config.language, self._pairs, "infilling"
        )
        return WritingData(train, valid, test)

    def _pairs(self, text: str, generator: np.random.Generator) -> Iterator[Pair]:
        config, prose = self.config, prose_lines(text, self.config.language)
        for number in range(config.per_document):
            size = config.holes[int(generator.integers(len(config.holes)))]
            hole = _FINDERS[size](text, generator, prose)
            if hole is not None:
                start, end = hole
                before, after = (
                    text[:start][-config.before_characters :],
                    text[end:][: config.after_characters],
                )
                yield Pair(f"{number}-{size}", before, (text[start:end],), suffix=after)

    def evaluate(self, items: Sequence[Pair], written: Sequence[str]) -> list[Measured]:
        """Return exact match and edit similarity of all holes, then by size."""
        metrics = (exact_match, edit_similarity)
        measured = [metric(references(items), written) for metric in metrics]
        for size in self.config.holes:
            kept = [number for number, item in enumerate(items) if item.key.endswith(f"-{size}")]
            if 0 < len(kept) < len(items):
                wanted = references([items[number] for number in kept])
                texts = [written[number] for number in kept]
                both = [metric(wanted, texts) for metric in metrics]
                measured += [replace(one, name=f"{one.name}_{size}") for one in both]
        return measured

    def evaluate_headline(self, items: Sequence[Pair], written: Sequence[str]) -> Measured:
        """Return exact match."""
        return exact_match(references(items), written)


def _part(text: str, generator: np.random.Generator, prose: frozenset[int]) -> tuple[int, int] | None:
    """Return a hole that starts before a word or sign within a line, and ends at a later space or the line's end."""
    for pair in cut_lines(text, generator, 1, prose):
        start, rest = len(pair.source), pair.references[0]
        words = [place for place, character in enumerate(rest) if character == " " and place > 0]
        ends = [*words, len(rest)]
        return start, start + ends[int(generator.integers(len(ends)))]
    return None


def whole_lines(
    text: str, generator: np.random.Generator, prose: frozenset[int], fewest: int, most: int
) -> tuple[int, int] | None:
    """Return where a hole of whole lines starts and ends, line end included; its outer lines are code."""
    lines = text.split("\n")
    wanted = int(generator.integers(fewest, most + 1))
    firsts = [
        number
        for number in range(1, len(lines) - wanted)
        if all(lines[one].strip() and one not in prose for one in (number, number + wanted - 1))
    ]
    if not firsts:
        return None
    first = firsts[int(generator.integers(len(firsts)))]
    start = sum(len(line) + 1 for line in lines[:first])
    return start, start + sum(len(line) + 1 for line in lines[first : first + wanted])


def _lines(
    text: str, generator: np.random.Generator, prose: frozenset[int], fewest: int, most: int
) -> tuple[int, int] | None:
    """Return a hole of whole lines, without the first indentation and the last line end."""
    hole = whole_lines(text, generator, prose, fewest, most)
    if hole is None:
        return None
    start, end = hole
    written = text[start:end]
    return start + len(written) - len(written.lstrip()), end - 1


_FINDERS: dict[Hole, Callable[[str, np.random.Generator, frozenset[int]], tuple[int, int] | None]] = {
    "part": _part,
    "line": partial(_lines, fewest=1, most=1),
    "lines": partial(_lines, fewest=2, most=_MAX_LINES),
}
