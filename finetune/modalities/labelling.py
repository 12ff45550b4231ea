"""Labelling texts or pairs of texts: data, protocols, evaluation, perturbation and answers.

Its tasks are clone detection, defect detection and cloze.

Shapes: N items, C labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from finetune.metrics.classification import best_threshold
from finetune.metrics.measured import Measured
from finetune.modalities.base import (
    Answers,
    Columns,
    Evaluation,
    Learner,
    Modality,
    OnProgress,
    Perturbation,
    Row,
    Source,
    TaskData,
    TrainedSystem,
    WatchOf,
    cut_of,
    no_progress,
    spread,
)
from finetune.transforms.kinds import transform

_MAX_TUNED_ON = 2000
"""Limit on the items of the validation split on which a threshold is chosen."""


@dataclass(frozen=True)
class Labelled:
    """One text, or two texts to compare, with a label's number."""

    key: str
    texts: tuple[str, ...]
    label: int


@dataclass(frozen=True)
class LabellingData(TaskData[Labelled, Sequence[Labelled]]):
    """The data of a labelling task, with the sizes that are needed to build a saved system without any item."""

    num_texts: int = 0
    """The number of texts of an item, 1 or 2; 0 uses that of the first item."""
    num_labels: int = 0
    """The minimum number of labels; it is larger if an item has a larger label."""

    def shape(self) -> tuple[int, int]:
        """Return (texts of an item, number of labels), derived from the items where not set; (0, ...) if unknown."""
        items = [*self.train, *self.valid, *self.test]
        num_texts = self.num_texts or (len(items[0].texts) if items else 0)
        return num_texts, max([self.num_labels, *(1 + item.label for item in items)])


class LabellingTask(Protocol):
    """A task whose systems label a text or a pair of texts."""

    reads_corpus: bool
    """Whether it may make data from a corpus."""
    labels: tuple[str, ...]
    """The names of the labels by number."""
    num_texts: int
    """The number of texts of an item, 1 or 2."""

    def files(self) -> list[Path]:
        """List the files that `load` reads besides the corpus, for fingerprints; all of them must exist."""
        ...

    def load(self, source: Source) -> LabellingData:
        """Load the data. Raise UserError if it cannot be used."""
        ...

    def evaluate(
        self, items: Sequence[Labelled], probability_NC: NDArray[np.float64], threshold: float | None = None
    ) -> list[Measured]:
        """Return the metrics, the headline first; labels are given by `labelling.given_labels`."""
        ...

    chooses_threshold: bool
    """Whether a system's threshold is chosen on the validation split, by `labelling.chosen_threshold`."""


class Labeller(Protocol):
    """A system that predicts label probabilities."""

    @property
    def learner(self) -> Learner | None:
        """The network to train and its data; None if nothing is trained."""
        ...

    def probabilities(self, texts: Sequence[tuple[str, ...]], on_progress: OnProgress) -> NDArray[np.float64]:
        """Return the probabilities, [number of items, number of labels]."""
        ...


def wanted_labels(items: Sequence[Labelled]) -> NDArray[np.int64]:
    """Return the label of every item. Raise UserError if there is no item."""
    if not items:
        raise UserError("there is no item to evaluate: the split is empty")
    return np.array([item.label for item in items], dtype=np.int64)


def given_labels(probability_NC: NDArray[np.float64], threshold: float | None) -> NDArray[np.int64]:
    """Return the likeliest label of every item; with a threshold, label 1 if its probability is at least that."""
    if threshold is not None:
        return np.asarray(probability_NC[:, 1] >= threshold, dtype=np.int64)
    return np.asarray(probability_NC.argmax(axis=1), dtype=np.int64)


def chosen_threshold(items: Sequence[Labelled], probability_NC: NDArray[np.float64]) -> float | None:
    """Return the threshold with the highest F1 on these items; None if no item has the second label."""
    if not any(item.label == 1 for item in items):
        return None
    return best_threshold(wanted_labels(items), probability_NC[:, 1])


def label_shares(items: Sequence[Labelled], labels: Sequence[str], split: str) -> dict[str, float]:
    """Return the share of each label in a split, as facts for the report."""
    return {
        f"{split}_share_{name}": sum(item.label == number for item in items) / max(1, len(items))
        for number, name in enumerate(labels)
    }


class LabellingEvaluation(Evaluation):
    """Evaluation of systems that predict label probabilities for every item."""

    def __init__(
        self, task: LabellingTask, data: LabellingData, valid_items: int, threshold: float | None = None
    ) -> None:
        """Keep the data; `threshold` is as in `Modality.evaluation`."""
        self.task, self.test_items, self._threshold = task, list(data.test), threshold
        self._valid = spread(data.valid, valid_items)
        self._tuning = spread(data.valid, _MAX_TUNED_ON)
        self.num_valid_items, self.num_test_items = len(self._valid), len(self.test_items)

    def validate(self, system: Labeller) -> float:
        """Return the headline metric on a part of the validation split."""
        found_NC = _probabilities(system, self._valid, no_progress)
        return self.task.evaluate(self._valid, found_NC)[0].value

    def test(self, system: Labeller, on_progress: OnProgress) -> Answers:
        """Evaluate the system on the whole test split."""
        threshold = self._threshold
        if threshold is None and self.task.chooses_threshold:
            found_NC = _probabilities(system, self._tuning, no_progress)
            threshold = chosen_threshold(self._tuning, found_NC)
        found_NC = _probabilities(system, self.test_items, on_progress)
        given_N = given_labels(found_NC, threshold)
        rows = [
            {
                "key": one.key,
                "texts": list(one.texts),
                "label": one.label,
                "given": int(given),
                "probabilities": [round(float(probability), 6) for probability in found_C],
            }
            for one, given, found_C in zip(self.test_items, given_N, found_NC, strict=True)
        ]
        measured = self.task.evaluate(self.test_items, found_NC, threshold)
        return Answers(measured, rows, cut_of(system), threshold)

    def before_and_after(
        self, system: Labeller, change: Perturbation, threshold: float | None, watch: WatchOf
    ) -> tuple[Measured, Measured] | None:
        """Return the headline metric before and after `change`; an item is changed if any of its texts is."""
        both = []
        for one in self.test_items:
            changed = [transform(change.kind, text, change.language, change.seed) for text in one.texts]
            if any(text is not None for text in changed):
                texts = tuple(new or old for old, new in zip(one.texts, changed, strict=True))
                both.append((one, replace(one, texts=texts)))
        if not both:
            return None

        def measured(items: Sequence[Labelled], which: str) -> Measured:
            on_progress = watch(f"{which} {change.kind}", len(items))
            return self.task.evaluate(items, _probabilities(system, items, on_progress), threshold)[0]

        return measured([old for old, _ in both], "before"), measured([new for _, new in both], "after")


class Labelling(Modality):
    """The modality of systems that label a text or a pair of texts."""

    def evaluation(
        self, task: LabellingTask, data: LabellingData, valid_items: int, threshold: float | None = None
    ) -> LabellingEvaluation:
        """Build the evaluation of a task with its data."""
        return LabellingEvaluation(task, data, valid_items, threshold)

    def columns(self, task_config: Any) -> Columns:
        """Return the column of the text, or of the two texts that are compared."""
        return Columns(("text", "other") if task_config.build().num_texts == 2 else ("text",))

    def no_data(self, task_config: Any, num_labels: int) -> LabellingData:
        """Return empty splits, for systems whose weights are loaded afterwards."""
        return LabellingData([], [], [], {}, task_config.build().num_texts, num_labels)

    def answer(
        self, trained: TrainedSystem, rows: Sequence[Mapping[str, Any]], on_progress: OnProgress
    ) -> list[Row]:
        """Return the name of each row's label, and the probabilities of all labels."""
        system: Labeller = trained.system
        names = self.columns(trained.task_config).needed
        texts = [tuple(str(row[name]) for name in names) for row in rows]
        found_NC = system.probabilities(texts, on_progress)
        return [
            {
                "prediction": trained.labels[given],
                "probabilities": dict(zip(trained.labels, map(float, found_C), strict=True)),
            }
            for given, found_C in zip(given_labels(found_NC, trained.threshold), found_NC, strict=True)
        ]


def _probabilities(
    system: Labeller, items: Sequence[Labelled], on_progress: OnProgress
) -> NDArray[np.float64]:
    return system.probabilities([one.texts for one in items], on_progress)
