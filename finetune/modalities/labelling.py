"""Labels for texts: clones in pairs, defects, cloze.

Shapes: N items, C labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetune.examples import Labelled, LabellingData
from finetune.metrics.measured import Measured
from finetune.modalities.base import (
    Answers,
    Columns,
    Evaluation,
    Modality,
    Perturbation,
    Row,
    TrainedSystem,
    WatchOf,
    no_progress,
    spread,
)
from finetune.systems.base import Labeller, OnProgress, cut_of
from finetune.tasks.base import LabellingTask
from finetune.tasks.labelling import chosen_threshold, given_labels
from finetune.transforms.registry import transform

_MAX_TUNED_ON = 2000
"""Items of the validation split by which a threshold is chosen."""


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
        return self.task.judge(self._valid, found_NC)[0].value

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
        measured = self.task.judge(self.test_items, found_NC, threshold)
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
            return self.task.judge(items, _probabilities(system, items, on_progress), threshold)[0]

        return measured([old for old, _ in both], "before"), measured([new for _, new in both], "after")


class Labelling(Modality):
    """See the module."""

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
        """The name of each row's label, and the probabilities of all."""
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
