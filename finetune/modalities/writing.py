"""Texts for texts: translation, repair, generation, summaries, completion of lines, infilling."""

from collections.abc import Mapping, Sequence
from typing import Any

from finetune.examples import Pair, WritingData
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
from finetune.systems.base import OnProgress, Writer, cut_of
from finetune.tasks.base import WritingTask
from finetune.transforms.items import transformed_items


class WritingEvaluation(Evaluation):
    """Every item's source is given, and its references are compared with what was written."""

    def __init__(self, task: WritingTask, data: WritingData, valid_items: int) -> None:
        self.task, self.test_items = task, list(data.test)
        self._valid = spread(data.valid, valid_items)
        self.num_valid_items, self.num_test_items = len(self._valid), len(self.test_items)

    def validate(self, system: Writer) -> float:
        """See `Evaluation`."""
        return self.task.quick(self._valid, system.write(_sources(self._valid), no_progress)).value

    def test(self, system: Writer, on_progress: OnProgress) -> Answers:
        """See `Evaluation`."""
        items = self.test_items
        written = system.write(_sources(items), on_progress)
        rows = [
            {"key": one.key, "source": one.source, "written": text, "references": list(one.references)}
            | ({"suffix": one.suffix} if one.suffix is not None else {})
            | ({"leaked": True} if one.leaked else {})
            for one, text in zip(items, written, strict=True)
        ]
        return Answers(self.task.judge(items, written), rows, cut_of(system))

    def before_and_after(
        self, system: Writer, change: Perturbation, threshold: float | None, watch: WatchOf
    ) -> tuple[Measured, Measured] | None:
        """See `Evaluation`: sources are changed."""
        changed = transformed_items(self.test_items, change.kind, change.language, change.seed)
        if not changed.before:
            return None

        def measured(items: Sequence[Pair], which: str) -> Measured:
            on_progress = watch(f"{which} {change.kind}", len(items))
            return self.task.quick(items, system.write(_sources(items), on_progress))

        return measured(changed.before, "before"), measured(changed.after, "after")


class Writing(Modality):
    """See the module."""

    def evaluation(
        self, task: WritingTask, data: WritingData, valid_items: int, threshold: float | None = None
    ) -> WritingEvaluation:
        """See `Modality`."""
        return WritingEvaluation(task, data, valid_items)

    def columns(self, task_config: Any) -> Columns:
        """A text; for infilling also the text after the hole."""
        return Columns(("text",), ("suffix",) if task_config.kind == "infilling" else ())

    def no_data(self, task_config: Any, num_labels: int) -> WritingData:
        """See `Modality`."""
        return WritingData([], [], [])

    def answer(
        self, trained: TrainedSystem, rows: Sequence[Mapping[str, Any]], on_progress: OnProgress
    ) -> list[Row]:
        """The text written for each."""
        system: Writer = trained.system
        has_suffix = "suffix" in self.columns(trained.task_config).optional
        given = [(str(row["text"]), _text(row, "suffix") if has_suffix else None) for row in rows]
        return [{"prediction": text} for text in system.write(given, on_progress)]


def _sources(items: Sequence[Pair]) -> list[tuple[str, str | None]]:
    return [(one.source, one.suffix) for one in items]


def _text(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    return value if isinstance(value, str) else None
