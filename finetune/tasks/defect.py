"""Is a function defective? Devign's form: records of a function and 0 or 1; judged by accuracy (Zhou et al. 2019)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from cluster.config import Config, LocalPath
from finetune.examples import Labelled, LabellingData
from finetune.formats.labelled import read_labelled_texts
from finetune.metrics.classification import accuracy, binary_f1
from finetune.metrics.measured import Measured
from finetune.tasks.base import Source
from finetune.tasks.labelling import given_labels, label_shares, wanted_labels
from finetune.tasks.splits import drawn, held_out


class DefectConfig(Config):
    """By default the names of CodeXGLUE's files."""

    kind: Literal["defect"] = "defect"
    folder: LocalPath
    """Holds the files."""
    train: str | None = "train.jsonl"
    """None where there is nothing to learn from."""
    valid: str | None = "valid.jsonl"
    """None takes one item in twenty of train, at most 500."""
    test: str = "test.jsonl"
    text: str = "func"
    """Field: the function."""
    label: str = "target"
    """Field: 0 for sound, 1 for defective."""
    max_train: PositiveInt | None = None
    """Training items, drawn by seed; None takes all."""
    max_test: PositiveInt | None = None


class Defect:
    """The LabellingTask of a `DefectConfig`."""

    reads_corpus = False
    labels: tuple[str, ...] = ("sound", "defective")
    num_texts = 1
    chooses_threshold = False

    def __init__(self, config: DefectConfig) -> None:
        self.config = config

    def files(self) -> list[Path]:
        """What is read, for fingerprints."""
        names = (self.config.train, self.config.valid, self.config.test)
        return [self.config.folder / name for name in names if name is not None]

    def load(self, source: Source) -> LabellingData:
        """Raises UserError for data that cannot be used."""
        config, seed = self.config, source.seed
        train = self._read("train", config.train) if config.train else []
        test = self._read("test", config.test)
        if config.valid is None:
            train, valid = held_out(train, seed)
        else:
            valid = self._read("valid", config.valid)
        known = {item.texts for item in train}
        facts = label_shares(train, self.labels, "train") | label_shares(test, self.labels, "test")
        facts["test_texts_in_train"] = sum(item.texts in known for item in test)
        train, test = (
            drawn(train, config.max_train, seed, "train"),
            drawn(test, config.max_test, seed, "test"),
        )
        return LabellingData(train, valid, test, facts, self.num_texts, len(self.labels))

    def judge(
        self, items: Sequence[Labelled], probability_NC: NDArray[np.float64], threshold: float | None = None
    ) -> list[Measured]:
        """Accuracy, and F1 of the defective ones."""
        wanted, given = wanted_labels(items), given_labels(probability_NC, threshold)
        return [accuracy(wanted, given), binary_f1(wanted, given)]

    def _read(self, split: str, name: str) -> list[Labelled]:
        config = self.config
        found = read_labelled_texts(config.folder / name, config.text, config.label, len(self.labels))
        return [
            Labelled(f"{split}-{number}", (text,), label)
            for number, (text, label) in enumerate(found, start=1)
        ]
