"""Shared interfaces of all modalities: the data of a task, the learner of a system, and evaluation."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from torch import nn

from finetune.metrics.measured import Measured

Example = TypeVar("Example")
Evaluated = TypeVar("Evaluated")


ModalityName = Literal["write", "rank", "label", "predict"]
"""The name of a modality; see `finetune.modalities`."""
OnProgress = Callable[[int], None]
"""Called with the number of items done so far: texts written, labelled or predicted, or queries ranked for."""


Row = dict[str, Any]
"""One line of predictions.jsonl, or one answer."""
WatchOf = Callable[[str, int], OnProgress]
"""Accepts a description of an evaluation ("after rename") and its number of items; returns its progress callback."""


@dataclass(frozen=True)
class TaskData(Generic[Example, Evaluated]):
    """A task's data. `facts` are counts for the report: items left out, truncated, or in two splits."""

    train: Sequence[Example]
    valid: Evaluated
    test: Evaluated
    facts: dict[str, float] = field(default_factory=dict)
    published: Mapping[str, tuple[str, ...]] = field(default_factory=dict, kw_only=True)
    """The originals, in the task's files, of the texts of `test` that the task has changed: see `Published`."""


@dataclass(frozen=True)
class Source:
    """The corpus from which a task can make its data (a folder of `permcode prep`, or None), and the seed."""

    prep: Path | None
    seed: int


class Learner(Protocol):
    """A network with its training batches and loss; `finetune.training.finetuner` trains it."""

    @property
    def module(self) -> nn.Module:
        """The network: `module(batch)` is the mean loss over the batch's predictions, a scalar."""
        ...

    @property
    def lengths_tokens(self) -> Sequence[int]:
        """The length of every training example, source and target together, to batch examples of similar length."""
        ...

    def batch(self, indices: Sequence[int], draw: int) -> Any:
        """Return the input of `module` for these examples. Random choices are a function of `draw` alone."""
        ...

    def depth(self, name: str) -> int:
        """Return how many layers a parameter is below the head, for layer-wise learning rates."""
        ...


@dataclass(frozen=True)
class Answers:
    """A system's answers on the test split: metrics, the headline first, and a row for every item."""

    measured: list[Measured]
    rows: list[Row]
    cut: dict[str, int]
    """The number of texts that were longer than the system reads or writes, by kind of text."""
    threshold: float | None = None
    """The threshold by which labels were given; see `labelling.given_labels`."""


@dataclass(frozen=True)
class Columns:
    """The columns that a row must have, and those that it may have."""

    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainedSystem:
    """A system with its weights, and the other settings that its answers depend on."""

    system: Any
    task_config: Any
    labels: tuple[str, ...] = ()
    """The names of the labels by number; empty for systems that do not label."""
    threshold: float | None = None
    """The threshold of the second of two labels; None gives the likelier label."""


@dataclass(frozen=True)
class Perturbation:
    """A change of the test code that preserves its behaviour."""

    kind: str
    """The name of a transform; see `finetune.transforms.kinds`."""
    language: str
    seed: int


class Evaluation(ABC):
    """A task with its data, ready to evaluate systems of its modality."""

    num_test_items: int
    """The number of items of the test split."""
    num_valid_items: int
    """The number of items of the validation split that `validate` uses."""

    @abstractmethod
    def validate(self, system: Any) -> float:
        """Return the headline metric on a part of the validation split."""

    @abstractmethod
    def test(self, system: Any, on_progress: OnProgress) -> Answers:
        """Evaluate the system on the whole test split."""

    @abstractmethod
    def before_and_after(
        self, system: Any, change: Perturbation, threshold: float | None, watch: WatchOf
    ) -> tuple[Measured, Measured] | None:
        """Return the headline metric on the items that `change` changes, before and after; None if it changes none.

        Both use `threshold` to give labels, as on the unchanged items.
        """


class Modality(ABC):
    """Evaluation and prediction for the systems of one modality."""

    @abstractmethod
    def evaluation(
        self, task: Any, data: Any, valid_items: int, threshold: float | None = None
    ) -> Evaluation:
        """Build the evaluation of a task of this modality with its data.

        `threshold` is a threshold chosen earlier; if it is None, one is chosen if the task has `chooses_threshold`.
        """

    @abstractmethod
    def columns(self, task_config: Any) -> Columns:
        """Return the columns of the rows that a system of this task accepts."""

    @abstractmethod
    def no_data(self, task_config: Any, num_labels: int) -> Any:
        """Return empty splits, for systems whose weights are loaded afterwards."""

    @abstractmethod
    def answer(
        self, trained: TrainedSystem, rows: Sequence[Mapping[str, Any]], on_progress: OnProgress
    ) -> list[Row]:
        """Return one answer per row; rows must have the columns of `columns`."""


def spread(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most `most` items, spread evenly over all, because files are often sorted."""
    if len(items) <= most:
        return list(items)
    return [items[number * len(items) // most] for number in range(most)]


def no_progress(_: int) -> None:
    """Ignore the progress: evaluations during training do not show theirs."""


def cut_of(system: Any) -> dict[str, int]:
    """Return how many texts were longer than the system reads or writes, by kind of text."""
    return dict(getattr(system, "cut", {}))
