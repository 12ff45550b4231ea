"""Writing a text for a text: data, protocols, loss, evaluation, perturbation and answers.

Translation, repair, generation, summaries, completion of lines and infilling are such tasks.

Shapes: X predictions, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

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
from pretrain.model.precision import at_least_float32
from pretrain.objective import prediction_loss


@dataclass(frozen=True)
class Pair:
    """A source and what may be written for it: the first reference is the one to learn."""

    key: str
    """Names the item in predictions; unique in its split."""
    source: str
    references: tuple[str, ...]
    suffix: str | None = None
    """For infilling: what stands behind the hole; `source` stands before it."""
    language: str | None = None
    """Of the references, as tree-sitter names it."""
    leaked: bool = False
    """A test item whose reference stands verbatim among the references to learn: also judged without these."""


WritingData = TaskData[Pair, Sequence[Pair]]


class WritingTask(Protocol):
    """A task whose systems write a text for a text."""

    reads_corpus: bool
    """Whether it may make data from a corpus."""

    def files(self) -> list[Path]:
        """List the files that `load` reads beside the corpus, for fingerprints; none of them may be missing."""
        ...

    def load(self, source: Source) -> WritingData:
        """Raises UserError for data that cannot be used."""
        ...

    def evaluate(self, items: Sequence[Pair], written: Sequence[str]) -> list[Measured]:
        """The headline metric first; early stopping and comparisons go by it."""
        ...

    def evaluate_headline(self, items: Sequence[Pair], written: Sequence[str]) -> Measured:
        """The headline metric alone, as `evaluate` would give it, for evaluations during training."""
        ...


class Writer(Protocol):
    """A system that writes a text for a text."""

    @property
    def learner(self) -> Learner | None:
        """The network to train and its data; None where nothing is trained."""
        ...

    def write(self, sources: Sequence[tuple[str, str | None]], on_progress: OnProgress) -> list[str]:
        """One text per (source, suffix); suffix is None but for infilling. The module is in evaluation mode."""
        ...


def writing_loss(logits_XV: Tensor, wanted_X: Tensor, label_smoothing: float) -> Tensor:
    """Mean negative log-likelihood in nats, float32 at least, whatever the logits are.

    `label_smoothing` is the share e of every target that is spread over the vocabulary (Szegedy et al. 2016, section
    7). With l the logits and w the wanted token the loss is -log p_w + e (l_w - mean l): so the likelihood's fused
    operator serves, and no float32 copy of the logits is made.
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

    A fair comparison judges a system on both, never on all items against the changed ones.
    """

    kind: str
    before: list[Pair]
    after: list[Pair]


def transformed_items(items: Sequence[Pair], kind: str, language: str, seed: int) -> Changed:
    """Return the items whose source the transform changes; references stay. Raises UserError for an unknown kind.

    References that repeat names of the source (translation) cannot be met after a renaming; labels, summaries and what
    is to be found can.
    """
    before, after = [], []
    for item in items:
        code = transform(kind, item.source, language, seed)
        if code is not None:
            before.append(item)
            after.append(replace(item, source=code))
    return Changed(kind, before, after)


class WritingEvaluation(Evaluation):
    """Every item's source is given, and its references are compared with what was written."""

    def __init__(self, task: WritingTask, data: WritingData, valid_items: int) -> None:
        self.task, self.test_items = task, list(data.test)
        self._valid = spread(data.valid, valid_items)
        self.num_valid_items, self.num_test_items = len(self._valid), len(self.test_items)

    def validate(self, system: Writer) -> float:
        """See `Evaluation`."""
        return self.task.evaluate_headline(
            self._valid, system.write(_sources(self._valid), no_progress)
        ).value

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
        return Answers(self.task.evaluate(items, written), rows, cut_of(system))

    def before_and_after(
        self, system: Writer, change: Perturbation, threshold: float | None, watch: WatchOf
    ) -> tuple[Measured, Measured] | None:
        """See `Evaluation`: sources are changed."""
        changed = transformed_items(self.test_items, change.kind, change.language, change.seed)
        if not changed.before:
            return None

        def measured(items: Sequence[Pair], which: str) -> Measured:
            on_progress = watch(f"{which} {change.kind}", len(items))
            return self.task.evaluate_headline(items, system.write(_sources(items), on_progress))

        return measured(changed.before, "before"), measured(changed.after, "after")


class Writing(Modality):
    """Systems that write a text for a text."""

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
        """Return the text that the system writes for each row."""
        system: Writer = trained.system
        has_suffix = "suffix" in self.columns(trained.task_config).optional
        given = [(str(row["text"]), _text(row, "suffix") if has_suffix else None) for row in rows]
        return [{"prediction": text} for text in system.write(given, on_progress)]


def _sources(items: Sequence[Pair]) -> list[tuple[str, str | None]]:
    return [(one.source, one.suffix) for one in items]


def _text(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    return value if isinstance(value, str) else None
