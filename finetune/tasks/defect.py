"""Defect detection: is a function defective? Evaluated by accuracy, as Devign (Zhou et al. 2019).

Files have Devign's form: records of a function and 0 or 1. Without files, the functions are those of a corpus' held-out
repositories, and the bugs are generated (`finetune.bugs`). The training data then contains every function in both
forms, so that they differ only in the bug; validation and test data contain one form of each.
"""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveInt

from cluster.config import LocalPath
from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus, open_prepared
from finetune.bugs.corpus import GeneratedBugs, functions_of_corpus, generated_bugs
from finetune.formats.labelled import read_labelled_texts
from finetune.held_out import SPLIT_TO_TEST_ON
from finetune.languages import grammar_name
from finetune.metrics.classification import accuracy, binary_f1
from finetune.metrics.measured import Measured
from finetune.modalities.base import ModalityName, Source
from finetune.modalities.labelling import Labelled, LabellingData, given_labels, label_shares, wanted_labels
from finetune.modalities.writing import Pair
from finetune.tasks.base import TaskConfigBase
from finetune.tasks.splits import drawn, held_out, learnt_and_chosen_by

_MOST_TRAIN, _MOST_TEST = 20_000, 1_000
"""Limits on the items of a corpus if the config sets none."""


class DefectConfig(TaskConfigBase):
    """The settings of defect detection. The default file names are CodeXGLUE's."""

    modality: ClassVar[ModalityName] = "label"
    not_of_the_test: ClassVar[frozenset[str]] = TaskConfigBase.not_of_the_test | {"train_splits"}

    kind: Literal["defect"] = "defect"
    folder: LocalPath | None = None
    """The folder of the files; None generates the items from the corpus."""
    language: str = "Python"
    """The language of the functions; for items of a corpus only."""
    train_splits: tuple[Literal["train", "validation"], ...] = Field(default=("validation",), min_length=1)
    """The splits of the corpus that training functions come from."""
    train: str | None = "train.jsonl"
    """The training file; None without training data."""
    valid: str | None = "valid.jsonl"
    """The validation file; None holds out one item in twenty of train, at most 500, as is done with a corpus."""
    test: str = "test.jsonl"
    text: str = "func"
    """The field with the function."""
    label: str = "target"
    """The field with the label: 0 for sound, 1 for defective."""
    max_train: PositiveInt | None = None
    """The maximum number of training items, drawn by seed; None uses all of a file, 20,000 of a corpus."""
    max_test: PositiveInt | None = None
    """The maximum number of test items, drawn by seed; None uses all of a file, 1,000 of a corpus."""

    def build(self) -> "Defect":
        """Build the task. Raise UserError if the settings do not fit together."""
        return Defect(self)


class Defect:
    """The LabellingTask of a `DefectConfig`."""

    labels: tuple[str, ...] = ("sound", "defective")
    num_texts = 1
    chooses_threshold = False

    def __init__(self, config: DefectConfig) -> None:
        self.config = config
        self.reads_corpus = config.folder is None

    def files(self) -> list[Path]:
        """List the files that `load` reads, for fingerprints."""
        config = self.config
        if config.folder is None:
            return []
        names = (config.train, config.valid, config.test)
        return [config.folder / name for name in names if name is not None]

    def load(self, source: Source) -> LabellingData:
        """Load the data. Raise UserError if it cannot be used."""
        if self.config.folder is None:
            return self._of_corpus(source)
        return self._of_files(self.config.folder, source.seed)

    def _of_files(self, folder: Path, seed: int) -> LabellingData:
        config = self.config
        train = self._read(folder, "train", config.train) if config.train else []
        test = self._read(folder, "test", config.test)
        if config.valid is None:
            train, valid = learnt_and_chosen_by(*held_out(train, seed), test)
        else:
            valid = self._read(folder, "valid", config.valid)
        known = {item.texts for item in train}
        facts = label_shares(train, self.labels, "train") | label_shares(test, self.labels, "test")
        facts["test_texts_in_train"] = sum(item.texts in known for item in test)
        train, test = (
            drawn(train, config.max_train, seed, "train"),
            drawn(test, config.max_test, seed, "test"),
        )
        return LabellingData(train, valid, test, facts, self.num_texts, len(self.labels))

    def evaluate(
        self, items: Sequence[Labelled], probability_NC: NDArray[np.float64], threshold: float | None = None
    ) -> list[Measured]:
        """Return the accuracy, and the F1 of "defective"."""
        wanted, given = wanted_labels(items), given_labels(probability_NC, threshold)
        return [accuracy(wanted, given), binary_f1(wanted, given)]

    def _of_corpus(self, source: Source) -> LabellingData:
        if source.prep is None:
            raise UserError("the defect task needs folder=DIR or a prepared corpus: give one of them")
        corpus, config, seed = open_prepared(source.prep), self.config, source.seed
        tested = self._made(corpus, (SPLIT_TO_TEST_ON,), seed, config.max_test or _MOST_TEST, [])
        most_train = config.max_train or _MOST_TRAIN
        learnt = self._made(corpus, config.train_splits, seed, (most_train + 1) // 2, tested.pairs)
        left, chosen = held_out(learnt.pairs, seed)
        train = [form for pair in left for form in both_forms(pair)]
        test = one_form_each(tested.pairs)
        train, valid = learnt_and_chosen_by(train, one_form_each(chosen), test)
        facts = {f"test_made_{kind}": float(count) for kind, count in sorted(tested.num_by_kind.items())}
        facts |= label_shares(train, self.labels, "train") | label_shares(test, self.labels, "test")
        return LabellingData(train, valid, test, facts, self.num_texts, len(self.labels))

    def _made(
        self, corpus: PreparedCorpus, splits: Sequence[str], seed: int, most: int, without: Sequence[Pair]
    ) -> GeneratedBugs:
        """Generate bugs in functions of the splits, except those that `without` contains in either form.

        Raise UserError if there are none.
        """
        language = self.config.language
        return generated_bugs(
            chain.from_iterable(functions_of_corpus(corpus, split, language, seed) for split in splits),
            grammar_name(language),
            seed,
            most=most,
            without=chain.from_iterable((pair.source, *pair.references) for pair in without),
            name=splits[0],
        )

    def _read(self, folder: Path, split: str, name: str) -> list[Labelled]:
        config = self.config
        found = read_labelled_texts(folder / name, config.text, config.label, len(self.labels))
        return [
            Labelled(f"{split}-{number}", (text,), label)
            for number, (text, label) in enumerate(found, start=1)
        ]


def both_forms(pair: Pair) -> list[Labelled]:
    """Return the sound function and the defective one of a pair."""
    return [Labelled(f"{pair.key}-sound", pair.references, 0), Labelled(f"{pair.key}-bug", (pair.source,), 1)]


def one_form_each(pairs: Sequence[Pair]) -> list[Labelled]:
    """Return one form of each pair, sound and defective in turn."""
    return [both_forms(pair)[number % 2] for number, pair in enumerate(pairs)]
