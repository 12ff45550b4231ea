"""Labelling texts or pairs of texts: data, protocols, evaluation, perturbation and answers.

Clones in pairs, defects and cloze are such tasks.

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
"""Items of the validation split by which a threshold is chosen."""


@dataclass(frozen=True)
class Labelled:
    """One text, or two to be compared, with the number of its label."""

    key: str
    texts: tuple[str, ...]
    label: int


@dataclass(frozen=True)
class LabellingData(TaskData[Labelled, Sequence[Labelled]]):
    """The data of a labelling task, with all that is needed to build a saved system without any item."""

    num_texts: int = 0
    """Of an item, 1 or 2; 0 takes what the first item has."""
    num_labels: int = 0
    """At least; more are taken where items have more."""

    def shape(self) -> tuple[int, int]:
        """Return (texts of an item, number of labels), also by what the items have; (0, ...) where that is unknown."""
        items = [*self.train, *self.valid, *self.test]
        num_texts = self.num_texts or (len(items[0].texts) if items else 0)
        return num_texts, max([self.num_labels, *(1 + item.label for item in items)])


class LabellingTask(Protocol):
    """A task whose systems label a text or a pair of texts."""

    reads_corpus: bool
    """Whether it may make data from a corpus."""
    labels: tuple[str, ...]
    """Names of the labels by number."""
    num_texts: int
    """Of an item, 1 or 2."""

    def files(self) -> list[Path]:
        """List the files that `load` reads beside the corpus, for fingerprints; none of them may be missing."""
        ...

    def load(self, source: Source) -> LabellingData:
        """Raises UserError for data that cannot be used."""
        ...

    def evaluate(
        self, items: Sequence[Labelled], probability_NC: NDArray[np.float64], threshold: float | None = None
    ) -> list[Measured]:
        """The headline metric first; labels are given as `labelling.given_labels` says."""
        ...

    chooses_threshold: bool
    """Whether a system's threshold is chosen on the validation split, by `labelling.chosen_threshold`."""


class Labeller(Protocol):
    """A system that gives labels."""

    @property
    def learner(self) -> Learner | None:
        """The network to train and its data; None where nothing is trained."""
        ...

    def probabilities(self, texts: Sequence[tuple[str, ...]], on_progress: OnProgress) -> NDArray[np.float64]:
        """[number of items, number of labels]."""
        ...


def wanted_labels(items: Sequence[Labelled]) -> NDArray[np.int64]:
    """Return the label of every item. Raises UserError when there is no item."""
    if not items:
        raise UserError("there is no item to evaluate: the split is empty")
    return np.array([item.label for item in items], dtype=np.int64)


def given_labels(probability_NC: NDArray[np.float64], threshold: float | None) -> NDArray[np.int64]:
    """Return the likelier label of every item; with a threshold, the second of two labels from that probability on."""
    if threshold is not None:
        return np.asarray(probability_NC[:, 1] >= threshold, dtype=np.int64)
    return np.asarray(probability_NC.argmax(axis=1), dtype=np.int64)


def chosen_threshold(items: Sequence[Labelled], probability_NC: NDArray[np.float64]) -> float | None:
    """Return the threshold of the highest F1 on these items; None where no item has the second label."""
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
    """Every item gets probabilities of the labels."""

    def __init__(
        self, task: LabellingTask, data: LabellingData, valid_items: int, threshold: float | None = None
    ) -> None:
        """`threshold` is a system's that was chosen before; None chooses one where the task asks for that."""
        self.task, self.test_items, self._threshold = task, list(data.test), threshold
        self._valid = spread(data.valid, valid_items)
        self._tuning = spread(data.valid, _MAX_TUNED_ON)
        self.num_valid_items, self.num_test_items = len(self._valid), len(self.test_items)

    def validate(self, system: Labeller) -> float:
        """See `Evaluation`."""
        found_NC = _probabilities(system, self._valid, no_progress)
        return self.task.evaluate(self._valid, found_NC)[0].value

    def test(self, system: Labeller, on_progress: OnProgress) -> Answers:
        """See `Evaluation`."""
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
        """See `Evaluation`: any of an item's texts is changed."""
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
    """Systems that label a text or a pair of texts."""

    def evaluation(
        self, task: LabellingTask, data: LabellingData, valid_items: int, threshold: float | None = None
    ) -> LabellingEvaluation:
        """See `Modality`."""
        return LabellingEvaluation(task, data, valid_items, threshold)

    def columns(self, task_config: Any) -> Columns:
        """A text, or two that are compared."""
        return Columns(("text", "other") if task_config.build().num_texts == 2 else ("text",))

    def no_data(self, task_config: Any, num_labels: int) -> LabellingData:
        """See `Modality`."""
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
