"""Writing a text for a text: data, protocols, loss, evaluation, perturbation and answers.

Its tasks are translation, repair, generation, summarisation, line completion and infilling.

Shapes: X predictions, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

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
from pretrain.model.loss import prediction_loss
from pretrain.model.precision import at_least_float32


@dataclass(frozen=True)
class Pair:
    """A source and its references: the first reference is the training target."""

    key: str
    """The item's name in predictions; unique in its split."""
    source: str
    references: tuple[str, ...]
    suffix: str | None = None
    """For infilling, the text after the hole; `source` is the text before it."""
    language: str | None = None
    """tree-sitter's name of the references' language."""
    leaked: bool = False
    """Whether a test item has a reference that is also a training target; metrics are also reported without these."""


WritingData = TaskData[Pair, Sequence[Pair]]


class WritingTask(Protocol):
    """A task whose systems write a text for a text."""

    reads_corpus: bool
    """Whether it may make data from a corpus."""

    def files(self) -> list[Path]:
        """List the files that `load` reads besides the corpus, for fingerprints; all of them must exist."""
        ...

    def load(self, source: Source) -> WritingData:
        """Load the data. Raise UserError if it cannot be used."""
        ...

    def evaluate(self, items: Sequence[Pair], written: Sequence[str]) -> list[Measured]:
        """Return the metrics, first the headline, which early stopping and comparisons use."""
        ...

    def evaluate_headline(self, items: Sequence[Pair], written: Sequence[str]) -> Measured:
        """Return only the headline metric, equal to that of `evaluate`, for validation during training."""
        ...


class Writer(Protocol):
    """A system that writes a text for a text."""

    @property
    def learner(self) -> Learner | None:
        """The network to train and its data; None if nothing is trained."""
        ...

    def write(self, sources: Sequence[tuple[str, str | None]], on_progress: OnProgress) -> list[str]:
        """Write one text per (source, suffix), in evaluation mode; suffix is None except for infilling."""
        ...


@runtime_checkable
class OracleWriter(Protocol):
    """A `Writer` that may use facts about the references, such as their lengths: an upper bound, not a competitor."""

    def see_references(self, items: Sequence[Pair]) -> None:
        """Accept the items whose sources are written for next."""
        ...


def writing_loss(logits_XV: Tensor, wanted_X: Tensor, label_smoothing: float) -> Tensor:
    """Return the mean negative log-likelihood in nats, in float32 at least, for logits of any dtype.

    `label_smoothing` is the share e of every target that is spread over the vocabulary (Szegedy et al. 2016, section
    7). With l the logits and w the wanted token, the loss is -log p_w + e (l_w - mean l): this form can use the fused
    operator of the likelihood, and makes no float32 copy of the logits.
    """
    loss = prediction_loss(logits_XV[None], wanted_X[None])
    if label_smoothing == 0.0:
        return loss
    wanted_logit_X = at_least_float32(logits_XV.gather(1, wanted_X[:, None])[:, 0])
    mean_logit_X = logits_XV.mean(dim=-1, dtype=wanted_logit_X.dtype)
    return loss + label_smoothing * (wanted_logit_X - mean_logit_X).mean()


@dataclass(frozen=True)
class Changed:
    """The items that the transform could change: `before[i]` and `after[i]` are one item, with the same references.

    For a fair comparison, evaluate a system on both lists, and never compare all items with the changed ones.
    """

    kind: str
    before: list[Pair]
    after: list[Pair]


def transformed_items(items: Sequence[Pair], kind: str, language: str, seed: int) -> Changed:
    """Return the items whose source the transform changes; references stay. Raise UserError if the kind is unknown.

    References that repeat names of the source (translation) cannot be matched after a renaming; labels, summaries and
    retrieval targets can.
    """
    before, after = [], []
    for item in items:
        code = transform(kind, item.source, language, seed)
        if code is not None:
            before.append(item)
            after.append(replace(item, source=code))
    return Changed(kind, before, after)


class WritingEvaluation(Evaluation):
    """Evaluation of systems by comparing the text written for every item with its references."""

    def __init__(self, task: WritingTask, data: WritingData, valid_items: int) -> None:
        self.task, self.test_items = task, list(data.test)
        self._valid = spread(data.valid, valid_items)
        self.num_valid_items, self.num_test_items = len(self._valid), len(self.test_items)

    def validate(self, system: Writer) -> float:
        """Return the headline metric on a part of the validation split."""
        return self.task.evaluate_headline(self._valid, _written(system, self._valid, no_progress)).value

    def test(self, system: Writer, on_progress: OnProgress) -> Answers:
        """Evaluate the system on the whole test split."""
        items = self.test_items
        written = _written(system, items, on_progress)
        rows = [
            {"key": one.key, "source": one.source, "written": text, "references": list(one.references)}
            | ({"suffix": one.suffix} if one.suffix is not None else {})
            | ({"leaked": True} if one.leaked else {})
            for one, text in zip(items, written, strict=True)
        ]
        return Answers(self.task.evaluate(items, written), rows, cut_of(system))

    def before_and_after(
        self, system: Writer, change: Perturbation, threshold: float | None, watch: WatchOf
    ) -> tuple[Measured, Measured] | None:
        """Return the headline metric on the items with a changed source, before and after `change`."""
        changed = transformed_items(self.test_items, change.kind, change.language, change.seed)
        if not changed.before:
            return None

        def measured(items: Sequence[Pair], which: str) -> Measured:
            on_progress = watch(f"{which} {change.kind}", len(items))
            return self.task.evaluate_headline(items, _written(system, items, on_progress))

        return measured(changed.before, "before"), measured(changed.after, "after")


class Writing(Modality):
    """The modality of systems that write a text for a text."""

    def evaluation(
        self, task: WritingTask, data: WritingData, valid_items: int, threshold: float | None = None
    ) -> WritingEvaluation:
        """Build the evaluation of a task with its data."""
        return WritingEvaluation(task, data, valid_items)

    def columns(self, task_config: Any) -> Columns:
        """Return the column of the text; for infilling also that of the text after the hole."""
        return Columns(("text",), ("suffix",) if task_config.has_suffix else ())

    def no_data(self, task_config: Any, num_labels: int) -> WritingData:
        """Return empty splits, for systems whose weights are loaded afterwards."""
        return WritingData([], [], [])

    def answer(
        self, trained: TrainedSystem, rows: Sequence[Mapping[str, Any]], on_progress: OnProgress
    ) -> list[Row]:
        """Return the text that the system writes for each row."""
        system: Writer = trained.system
        has_suffix = "suffix" in self.columns(trained.task_config).optional
        given = [(str(row["text"]), _text(row, "suffix") if has_suffix else None) for row in rows]
        return [{"prediction": text} for text in system.write(given, on_progress)]


def _written(system: Writer, items: Sequence[Pair], on_progress: OnProgress) -> list[str]:
    if isinstance(system, OracleWriter):
        system.see_references(items)
    return system.write([(one.source, one.suffix) for one in items], on_progress)


def _text(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    return value if isinstance(value, str) else None
