"""Cloze: which of two words is masked? CodeXGLUE's cloze test "maxmin" (first used by Feng et al. 2020), with answers.

CodeXGLUE publishes its items without answers, so they cannot be evaluated. The items made here have the same form: a
`max` or `min` of the corpus's held-out repositories is masked, and the word is kept as the answer.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt, field_validator

from cluster.config import LocalPath
from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus, open_prepared
from finetune.formats.labelled import MASK, read_answers, read_cloze
from finetune.held_out import SPLIT_TO_TEST_ON, SPLIT_TO_TRAIN_ON, HeldOutDocument, held_out_documents
from finetune.lexing import python_lexemes
from finetune.metrics.classification import accuracy
from finetune.metrics.measured import Measured
from finetune.modalities.base import ModalityName, Source
from finetune.modalities.labelling import Labelled, LabellingData, given_labels, label_shares, wanted_labels
from finetune.tasks.base import TaskConfigBase
from finetune.tasks.published import Published
from finetune.tasks.splits import drawn, held_out, learnt_and_chosen_by
from pretrain.randomness import keyed_generator

_MAX_PER_DOCUMENT = 4
"""Limit on the items of one document of a corpus, so that no document outweighs the others."""


class ClozeConfig(TaskConfigBase):
    """The settings of the cloze task. Items come from the corpus or, if `items` is set, from a file."""

    modality: ClassVar[ModalityName] = "label"
    not_of_the_test: ClassVar[frozenset[str]] = TaskConfigBase.not_of_the_test | {"items", "answers"}

    kind: Literal["cloze"] = "cloze"
    words: tuple[str, ...] = Field(default=("max", "min"), min_length=2)
    """The candidates; labels are their numbers."""
    items: LocalPath | None = None
    """CodeXGLUE's clozeTest.json; all of it is the test split."""
    answers: LocalPath | None = None
    """A file of lines IDX<CODESPLIT>WORD, one for every item."""
    context_lines: PositiveInt = 20
    """The number of lines before and after the line of the masked word; for items of a corpus only."""
    max_train: PositiveInt = 5_000
    """The maximum number of training items; for items of a corpus only."""
    max_test: PositiveInt = 1_000

    @field_validator("words")
    @classmethod
    def _different_words(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(value) or len(set(value)) != len(value):
            raise ValueError("must be different words, none of them empty")
        return value

    def build(self) -> "Cloze":
        """Build the task. Raise UserError if the settings do not fit together."""
        return Cloze(self)


class Cloze:
    """The LabellingTask of a `ClozeConfig`."""

    reads_corpus = True
    num_texts = 1
    chooses_threshold = False

    def __init__(self, config: ClozeConfig) -> None:
        self.config = config
        self.labels = config.words

    def files(self) -> list[Path]:
        """List the files that `load` reads, for fingerprints."""
        return [path for path in (self.config.items, self.config.answers) if path is not None]

    def load(self, source: Source) -> LabellingData:
        """Load the data. Raise UserError if it cannot be used, or items have no answers."""
        config = self.config
        if config.items is not None:
            published = Published()
            test = self._of_file(config.items, published)
            facts, found = label_shares(test, self.labels, "test"), published.changed()
            return LabellingData([], test, test, facts, self.num_texts, len(self.labels), published=found)
        if source.prep is None:
            raise UserError("the cloze task needs items=FILE or a prepared corpus: give one of them")
        corpus = open_prepared(source.prep)
        test = self._of_corpus(corpus, SPLIT_TO_TEST_ON, source.seed, config.max_test)
        learnt = self._of_corpus(corpus, SPLIT_TO_TRAIN_ON, source.seed, config.max_train)
        # Items of one document contain each other's answers, so they stay in one split.
        left, chosen = held_out(learnt, source.seed, group_of=document_of)
        facts = label_shares(left, self.labels, "train") | label_shares(test, self.labels, "test")
        train, valid = learnt_and_chosen_by(left, chosen, test)
        return LabellingData(train, valid, test, facts, self.num_texts, len(self.labels))

    def evaluate(
        self, items: Sequence[Labelled], probability_NC: NDArray[np.float64], threshold: float | None = None
    ) -> list[Measured]:
        """Return the accuracy."""
        return [accuracy(wanted_labels(items), given_labels(probability_NC, threshold))]

    def _of_file(self, path: Path, published: Published) -> list[Labelled]:
        items = read_cloze(path)
        if self.config.answers is None:
            raise UserError(
                f"{path} has no answers, and CodeXGLUE publishes none: give answers=FILE, or leave items out "
                "to have items made of the corpus"
            )
        answers = read_answers(self.config.answers, self.labels)
        missing = [item.key for item in items if item.key not in answers]
        if missing:
            raise UserError(
                f"{self.config.answers} has no answer for {missing[0]} and {len(missing) - 1} others"
            )
        for item in items:
            published.note(item.text, item.code.replace(MASK, self.labels[answers[item.key]]))
        return [Labelled(item.key, (item.text,), answers[item.key]) for item in items]

    def _of_corpus(self, corpus: PreparedCorpus, split: str, seed: int, most: int) -> list[Labelled]:
        found: list[Labelled] = []
        for document in held_out_documents(corpus, split, seed):
            items = list(masked_words(document, self.config.words, self.config.context_lines))
            generator = keyed_generator(seed, f"cloze-{split}", len(found))
            order = generator.permutation(len(items))[:_MAX_PER_DOCUMENT]
            found += [items[index] for index in np.sort(order)]
            if len(found) >= most:
                break
        if not found:
            raise UserError(
                f"{corpus.folder}: the {split} split has none of the words {', '.join(self.config.words)}: "
                "use a larger corpus"
            )
        return drawn(found, most, seed, f"cloze-{split}")


def document_of(item: Labelled) -> str:
    """Return the name of the document that an item of a corpus comes from."""
    return item.key.rpartition("@")[0]


def masked_words(document: HeldOutDocument, words: Sequence[str], context_lines: int) -> Iterator[Labelled]:
    """Yield an item for every lexeme that is one of the words, with `context_lines` lines before and after its own.

    Skip items whose text already contains `<mask>`.
    """
    data = document.text.encode()
    for lexeme in python_lexemes(document.text):
        if lexeme.text not in words:
            continue
        before, behind = data[: lexeme.start_byte].decode(), data[lexeme.end_byte :].decode()
        shown_before = "\n".join(before.split("\n")[-context_lines - 1 :])
        shown_behind = "\n".join(behind.split("\n")[: context_lines + 1])
        if MASK not in shown_before and MASK not in shown_behind:
            key = f"{document.name}@{lexeme.start_byte}"
            yield Labelled(key, (shown_before + MASK + shown_behind,), words.index(lexeme.text))
