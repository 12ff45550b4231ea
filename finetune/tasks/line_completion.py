"""Line completion: write the rest of a line of code. Evaluated as CodeXGLUE's CodeCompletion-line.

Items come from files of {input, gt} or, without a folder, from a corpus: a line is cut before one of its words or
signs. Training data can be made from a corpus in the form of the files. Normalised literals are replaced by plain text
before texts are compared. Long inputs are truncated on the left.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import PositiveInt, ValidationInfo, field_validator

from cluster.errors import UserError
from finetune.formats.pair_files import PairSource
from finetune.formats.published_lines import (
    START,
    Literals,
    PublishedLines,
    language_of_items,
    published_lines,
    read_literals,
)
from finetune.languages import grammar_name
from finetune.metrics.edit import edit_similarity, plain_literals
from finetune.metrics.exact import exact_match_tokens
from finetune.metrics.measured import Measured
from finetune.modalities.base import ModalityName, Source
from finetune.modalities.writing import Pair, WritingData
from finetune.syntax import prose_lines
from finetune.tasks.base import TaskConfigBase
from finetune.tasks.derived import derived_splits
from finetune.tasks.published import Published, whole_words
from finetune.tasks.writing import finish, load_pair_files, references

_PIECE = re.compile(r"\w+|[^\w\s]")
_MIN_PIECES = 3


class LineCompletionConfig(PairSource, TaskConfigBase):
    """The settings of line completion. The default file names of a folder are CodeXGLUE's."""

    modality: ClassVar[ModalityName] = "write"
    not_of_the_test: ClassVar[frozenset[str]] = TaskConfigBase.not_of_the_test | {"literals"}

    kind: Literal["line_completion"] = "line_completion"
    train: str | None = None
    valid: str | None = None
    test: str = "dev.json"
    source: str = "input"
    target: str = "gt"
    language: str = "Python"
    """The language of the documents of a corpus."""
    literals: Path | None = None
    """CodeXGLUE's literals.json; a name without a folder is looked up in `folder`.

    If it is set, `train` is not, and there is a corpus besides `folder`, training data is made from the corpus'
    documents of `language`, Python or Java, in the form of the published set.
    """
    context_characters: PositiveInt = 2000
    """The maximum length of a source; longer ones are truncated on the left."""
    per_document: PositiveInt = 8
    """The maximum number of items from one document of a corpus."""

    @field_validator("literals", mode="before")
    @classmethod
    def _beside_the_files(cls, literals: Any, others: ValidationInfo) -> Any:
        """Resolve the path before it is parsed, because a Path drops the `./` before a name."""
        folder = others.data.get("folder")
        if not isinstance(literals, str | Path):
            return literals
        if "/" not in str(literals) and folder is not None:
            return Path(folder) / literals
        return Path(literals).expanduser().absolute()

    def build(self) -> "LineCompletion":
        """Build the task. Raise UserError if the settings do not fit together."""
        return LineCompletion(self)


class LineCompletion:
    """The WritingTask of a `LineCompletionConfig`."""

    reads_corpus = True

    def __init__(self, config: LineCompletionConfig) -> None:
        self.config = config

    def files(self) -> list[Path]:
        """List the files that `load` reads, for fingerprints."""
        return self.config.files() + ([self.config.literals] if self.config.literals is not None else [])

    def load(self, source: Source) -> WritingData:
        """Load the pairs of the files or of the corpus. Raise UserError if they cannot be used."""
        language = grammar_name(self.config.language)
        if self.config.folder is not None:
            data = load_pair_files(self.config, language, source.seed)
            if self.config.literals is not None and self.config.train is None and source.prep is not None:
                data = self._taught(data, read_literals(self.config.literals), source)
            return self._cut(data)
        train, valid, test = derived_splits(
            source, self.config, self.config.language, self._pairs, "line_completion"
        )
        return self._cut(finish(train, valid, test, self.config, {}, source.seed))

    def _pairs(self, text: str, generator: np.random.Generator) -> Iterator[Pair]:
        yield from cut_lines(
            text, generator, self.config.per_document, prose_lines(text, self.config.language)
        )

    def _taught(self, data: WritingData, literals: Literals, source: Source) -> WritingData:
        """Add training items in the published form, and validation items if the files have none."""
        form = self._form(data.test)

        def pairs(text: str, generator: np.random.Generator) -> Iterator[Pair]:
            tokens = form.tokens(text, literals)
            return cut_tokens(tokens, form.cuts(tokens), generator, self.config.per_document)

        train, valid, _ = derived_splits(source, self.config, self.config.language, pairs, "line_completion")
        return replace(data, train=train, valid=data.valid or valid)

    def _form(self, items: Sequence[Pair]) -> PublishedLines:
        """Return the published form of the task's language.

        Raise UserError if there is none, or the items are in another language.
        """
        form, found = published_lines(self.config.language), language_of_items(items)
        if found not in (None, form.language):
            raise UserError(
                f"{self.config.paths('test')[0]}: its items are {found} in the published form, but task.language is "
                f"{self.config.language}: set task.language={found}"
            )
        return form

    def _cut(self, data: WritingData) -> WritingData:
        """Truncate the sources on the left, and drop the leak marks: a short line that is also in train is no leak."""
        most = self.config.context_characters
        facts = {name: fact for name, fact in data.facts.items() if not name.startswith("test_")}
        facts["test_sources_cut"] = sum(len(pair.source) > most for pair in data.test)
        published = Published()
        for source in (pair.source for pair in data.test if len(pair.source) > most):
            published.note(source[-most:], whole_words(source, len(source) - most, len(source)))
        train, valid, test = (
            [replace(pair, source=pair.source[-most:], leaked=False) for pair in split]
            for split in (data.train, data.valid, data.test)
        )
        return WritingData(train, valid, test, facts, published=published.changed())

    def evaluate(self, items: Sequence[Pair], written: Sequence[str]) -> list[Measured]:
        """Return exact match by tokens and edit similarity, with literals replaced by plain text."""
        wanted, texts = _plain(items, written)
        return [exact_match_tokens(wanted, texts), edit_similarity(wanted, texts)]

    def evaluate_headline(self, items: Sequence[Pair], written: Sequence[str]) -> Measured:
        """Return exact match by tokens."""
        return exact_match_tokens(*_plain(items, written))


def cut_lines(
    text: str, generator: np.random.Generator, most: int, prose: frozenset[int] = frozenset()
) -> Iterator[Pair]:
    """Yield items of up to `most` lines, each cut before any piece except its first; keys are line numbers.

    Skip lines of fewer than three pieces, and the lines in `prose`, which are not code.
    """
    lines = text.split("\n")
    starts = np.cumsum([0, *(len(line) + 1 for line in lines)])
    usable = [
        number
        for number, line in enumerate(lines)
        if number not in prose and len(_PIECE.findall(line)) >= _MIN_PIECES
    ]
    for index in sorted(generator.permutation(len(usable))[:most]):
        line, start = lines[usable[index]], int(starts[usable[index]])
        pieces = list(_PIECE.finditer(line))
        place = pieces[int(generator.integers(1, len(pieces)))].start()
        yield Pair(str(usable[index] + 1), text[: start + place], (line[place:].rstrip(),))


def cut_tokens(
    tokens: Sequence[str], cuts: Sequence[tuple[int, int]], generator: np.random.Generator, most: int
) -> Iterator[Pair]:
    """Yield items of up to `most` distinct cuts (first, end): the tokens before `first`, and those from there to `end`.

    A cut that is listed twice has twice the weight in sampling.
    """
    order = generator.permutation(len(cuts))
    drawn = list(dict.fromkeys(cuts[index] for index in order))[:most]
    for first, end in sorted(drawn):
        yield Pair(str(first), " ".join([START, *tokens[:first]]), (" ".join(tokens[first:end]),))


def _plain(items: Sequence[Pair], written: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    wanted = [[plain_literals(text) for text in texts] for texts in references(items)]
    return wanted, [plain_literals(text) for text in written]
