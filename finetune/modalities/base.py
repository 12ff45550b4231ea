"""What all modalities share: the data of a task, the learner of a system, and the evaluation of one on the other."""

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
"""What a task needs a system to do; see `finetune.modalities`."""
OnProgress = Callable[[int], None]
"""Called with the number of items done so far: texts to write, to label or to predict, queries to rank for."""


Row = dict[str, Any]
"""One line of predictions.jsonl, or one answer."""
WatchOf = Callable[[str, int], OnProgress]
"""Takes what is evaluated ("after rename") and of how many items; returns what is called after every item."""


@dataclass(frozen=True)
class TaskData(Generic[Example, Evaluated]):
    """A task's data. `facts` are counts for the report: what was left out, cut, or is in two splits."""

    train: Sequence[Example]
    valid: Evaluated
    test: Evaluated
    facts: dict[str, float] = field(default_factory=dict)
    published: Mapping[str, tuple[str, ...]] = field(default_factory=dict, kw_only=True)
    """As what texts of `test` stand in the task's files, of those that the task has changed: see `Published`."""


@dataclass(frozen=True)
class Source:
    """The corpus of a task that makes its data from one: a folder of `permcode prep`, or None."""

    prep: Path | None
    seed: int


class Learner(Protocol):
    """A network and how training examples become its loss; `finetune.training.finetuner` trains it."""

    @property
    def module(self) -> nn.Module:
        """`module(batch)` is the mean loss over what the batch predicts, a scalar."""
        ...

    @property
    def lengths_tokens(self) -> Sequence[int]:
        """The length of every training example, source and target together; a batch has examples of like length."""
        ...

    def batch(self, indices: Sequence[int], draw: int) -> Any:
        """Return the input of `module` for these examples. Random choices are a function of `draw` alone."""
        ...

    def depth(self, name: str) -> int:
        """Return how many layers a parameter lies below the head, for layer-wise learning rates."""
        ...


@dataclass(frozen=True)
class Answers:
    """A system's answers on the test split: metrics, the headline first, and a row for every item."""

    measured: list[Measured]
    rows: list[Row]
    cut: dict[str, int]
    """How many texts were longer than the system reads or writes, by what they were."""
    threshold: float | None = None
    """By which labels were given; see `labelling.given_labels`."""


@dataclass(frozen=True)
class Columns:
    """The columns that a row to be answered must have, and may have."""

    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainedSystem:
    """A system with its weights, and what its answers depend on beside them."""

    system: Any
    task_config: Any
    labels: tuple[str, ...] = ()
    """Names of the labels by number; empty for other systems."""
    threshold: float | None = None
    """Of the second of two labels; None gives the likelier one."""


@dataclass(frozen=True)
class Perturbation:
    """A change of the test code that does not change what it does."""

    kind: str
    """See `finetune.transforms.kinds`."""
    language: str
    seed: int


class Evaluation(ABC):
    """A task with its data, ready to evaluate systems of its modality."""

    num_test_items: int
    """Of the test split."""
    num_valid_items: int
    """Of the validation split, that `validate` uses."""

    @abstractmethod
    def validate(self, system: Any) -> float:
        """Return the headline metric on a part of the validation split."""

    @abstractmethod
    def test(self, system: Any, on_progress: OnProgress) -> Answers:
        """Evaluate all of the test split."""

    @abstractmethod
    def before_and_after(
        self, system: Any, change: Perturbation, threshold: float | None, watch: WatchOf
    ) -> tuple[Measured, Measured] | None:
        """Return the headline metric on the items that `change` changes, before and after; None where it changes none.

        Labels are given by `threshold`, as on the unchanged items.
        """


class Modality(ABC):
    """The evaluation and the use of systems of one modality."""

    @abstractmethod
    def evaluation(
        self, task: Any, data: Any, valid_items: int, threshold: float | None = None
    ) -> Evaluation:
        """Build the evaluation of a task of this modality with its data.

        `threshold` is a system's that was chosen before; None chooses one where the task asks for that.
        """

    @abstractmethod
    def columns(self, task_config: Any) -> Columns:
        """Return the columns of the rows that a system for this task answers."""

    @abstractmethod
    def no_data(self, task_config: Any, num_labels: int) -> Any:
        """Return splits without items, for systems whose weights are loaded afterwards."""

    @abstractmethod
    def answer(
        self, trained: TrainedSystem, rows: Sequence[Mapping[str, Any]], on_progress: OnProgress
    ) -> list[Row]:
        """Return one answer per row; rows have the columns of `columns`."""


def spread(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most `most` items, evenly spread over all, because files are often sorted."""
    if len(items) <= most:
        return list(items)
    return [items[number * len(items) // most] for number in range(most)]


def no_progress(_: int) -> None:
    """Ignore the progress: that of evaluations during training is not shown."""


def cut_of(system: Any) -> dict[str, int]:
    """Return how many of the texts that a system was given were longer than it reads or writes, by kind of text."""
    return dict(getattr(system, "cut", {}))
