"""What a task is: where its data comes from, and how predictions are judged.

A task's config class stands in its file beside it. The harness loads the data once, gives every system the same, and
has `judge` measure what each wrote, ranked, labelled or predicted.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from cluster.config import Config
from finetune.examples import (
    Code,
    Labelled,
    LabellingData,
    Pair,
    Pool,
    PredictingData,
    RankingData,
    WritingData,
)
from finetune.metrics.measured import Measured
from finetune.systems.base import Asks


@dataclass(frozen=True)
class Source:
    """Where a task that makes its data from a corpus finds it: a folder of `permcode prep`, or None."""

    prep: Path | None
    seed: int


class TaskConfigBase(Config):
    """The settings of a task. A subclass has a `kind`, its name in recipes."""

    asks: ClassVar[Asks]
    not_of_the_test: ClassVar[frozenset[str]] = frozenset(
        {"folder", "train", "valid", "test", "max_train", "max_valid", "max_test"}
    )
    """Settings that only training depends on, or that show in the test items themselves."""

    def test_settings(self) -> dict[str, Any]:
        """The other settings: with the test items they decide what a result means."""
        dumped = self.model_dump(mode="json")
        return {name: value for name, value in dumped.items() if name not in self.not_of_the_test}

    @abstractmethod
    def build(self) -> "Task":
        """The task. Raises UserError for settings that do not fit together."""


class WritingTask(Protocol):
    """Texts for texts: translation, repair, generation, summaries, completion, infilling."""

    reads_corpus: bool
    """Whether it may make data from a corpus."""

    def files(self) -> list[Path]:
        """What `load` reads beside the corpus, for fingerprints; none of them may be missing."""
        ...

    def load(self, source: Source) -> WritingData:
        """Raises UserError for data that cannot be used."""
        ...

    def judge(self, items: Sequence[Pair], written: Sequence[str]) -> list[Measured]:
        """The headline metric first; early stopping and comparisons go by it."""
        ...

    def quick(self, items: Sequence[Pair], written: Sequence[str]) -> Measured:
        """The headline metric alone, as `judge` would give it, for evaluations during training."""
        ...


class RankingTask(Protocol):
    """Candidates for queries: search and clone retrieval."""

    reads_corpus: bool
    """Whether it may make data from a corpus."""

    def files(self) -> list[Path]:
        """What `load` reads beside the corpus, for fingerprints; none of them may be missing."""
        ...

    def load(self, source: Source) -> RankingData:
        """Raises UserError for data that cannot be used."""
        ...

    def judge(self, pool: Pool, score_QC: NDArray[np.float64]) -> list[Measured]:
        """The headline metric first."""
        ...


class LabellingTask(Protocol):
    """Labels for texts: clones in pairs, defects, cloze."""

    reads_corpus: bool
    """Whether it may make data from a corpus."""
    labels: tuple[str, ...]
    """Names of the labels by number."""
    num_texts: int
    """Of an item, 1 or 2."""

    def files(self) -> list[Path]:
        """What `load` reads beside the corpus, for fingerprints; none of them may be missing."""
        ...

    def load(self, source: Source) -> LabellingData:
        """Raises UserError for data that cannot be used."""
        ...

    def judge(
        self, items: Sequence[Labelled], probability_NC: NDArray[np.float64], threshold: float | None = None
    ) -> list[Measured]:
        """The headline metric first; labels are given as `labelling.given_labels` says."""
        ...

    chooses_threshold: bool
    """Whether a system's threshold is chosen on the validation split, by `labelling.chosen_threshold`."""


class PredictingTask(Protocol):
    """Every token of a code from those before it."""

    reads_corpus: bool
    """Whether it may make data from a corpus."""

    def files(self) -> list[Path]:
        """What `load` reads beside the corpus, for fingerprints; none of them may be missing."""
        ...

    def load(self, source: Source) -> PredictingData:
        """Raises UserError for data that cannot be used."""
        ...

    is_source: bool
    """Whether texts are source code, and not its tokens with spaces between them."""

    def code(self, key: str, text: str) -> Code:
        """A text to predict, as a whole."""
        ...

    def judge(self, items: Sequence[Code], rank_DT: Sequence[NDArray[np.float64]]) -> list[Measured]:
        """The headline metric first; of every item the ranks of its lexemes."""
        ...


Task = WritingTask | RankingTask | LabellingTask | PredictingTask
