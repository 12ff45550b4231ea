"""Predicting every token of code from those before it: data, protocols, evaluation, perturbation and answers.

Shapes: D documents, T tokens of a document.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from finetune.lexing import Lexeme
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

_UNREADABLE: Row = {"prediction": None, "tokens": [], "ranks": []}


@dataclass(frozen=True)
class Code:
    """A text whose code tokens are predicted one after the other."""

    key: str
    text: str
    read_lexemes: Callable[[], Sequence[Lexeme]]
    """Called only when the lexemes are needed, because lexing is slow and training on whole texts does without it."""

    @cached_property
    def lexemes(self) -> Sequence[Lexeme]:
        """The tokens in order, with UTF-8 byte offsets in `text`; empty for a text that cannot be lexed."""
        return self.read_lexemes()


PredictingData = TaskData[Code, Sequence[Code]]


class PredictingTask(Protocol):
    """A task whose systems predict every token of code from those before it."""

    reads_corpus: bool
    """Whether it may make data from a corpus."""

    def files(self) -> list[Path]:
        """List the files that `load` reads besides the corpus, for fingerprints; all of them must exist."""
        ...

    def load(self, source: Source) -> PredictingData:
        """Load the data. Raise UserError if it cannot be used."""
        ...

    is_source: bool
    """Whether texts are source code, as opposed to tokens joined by spaces."""

    def code(self, key: str, text: str) -> Code:
        """Return a whole text as an item to predict."""
        ...

    def evaluate(self, items: Sequence[Code], rank_DT: Sequence[NDArray[np.float64]]) -> list[Measured]:
        """Return the metrics, the headline first, given the ranks of every item's lexemes."""
        ...


class Predictor(Protocol):
    """A system that predicts the tokens of code."""

    @property
    def learner(self) -> Learner | None:
        """The network to train and its data; None if nothing is trained."""
        ...

    def ranks(self, items: Sequence[Code], on_progress: OnProgress) -> list[NDArray[np.float64]]:
        """Return for every item the ranks, from 1, of its lexemes among the choices, each given the text before it.

        The rank of a lexeme that is not among the choices is infinite.
        """
        ...


class PredictingEvaluation(Evaluation):
    """Evaluation of systems that rank every token of an item among the choices."""

    def __init__(self, task: PredictingTask, data: PredictingData, valid_items: int) -> None:
        self.task, self.test_items = task, list(data.test)
        self._valid = spread(data.valid, valid_items)
        self.num_valid_items, self.num_test_items = len(self._valid), len(self.test_items)

    def validate(self, system: Predictor) -> float:
        """Return the headline metric on a part of the validation split."""
        return self.task.evaluate(self._valid, system.ranks(self._valid, no_progress))[0].value

    def test(self, system: Predictor, on_progress: OnProgress) -> Answers:
        """Evaluate the system on the whole test split."""
        rank_DT = system.ranks(self.test_items, on_progress)
        rows = [_row(one, rank_T) for one, rank_T in zip(self.test_items, rank_DT, strict=True)]
        return Answers(self.task.evaluate(self.test_items, rank_DT), rows, cut_of(system))

    def before_and_after(
        self, system: Predictor, change: Perturbation, threshold: float | None, watch: WatchOf
    ) -> tuple[Measured, Measured] | None:
        """Return the headline metric on the changed items, before and after `change`; None if there are none.

        Parts of files rarely parse alone, and an item that does not parse is not changed.
        """
        if not self.task.is_source:
            return None
        before, after = [], []
        for one in self.test_items:
            text = transform(change.kind, one.text, change.language, change.seed)
            if text is not None and (changed := self.task.code(one.key, text)).lexemes:
                before.append(one)
                after.append(changed)
        if not before:
            return None

        def measured(items: Sequence[Code], which: str) -> Measured:
            on_progress = watch(f"{which} {change.kind}", len(items))
            return self.task.evaluate(items, system.ranks(items, on_progress))[0]

        return measured(before, "before"), measured(after, "after")


class Predicting(Modality):
    """The modality of systems that predict every token of code."""

    def evaluation(
        self, task: PredictingTask, data: PredictingData, valid_items: int, threshold: float | None = None
    ) -> PredictingEvaluation:
        """Build the evaluation of a task with its data."""
        return PredictingEvaluation(task, data, valid_items)

    def columns(self, task_config: Any) -> Columns:
        """Return the column of the text."""
        return Columns(("text",))

    def no_data(self, task_config: Any, num_labels: int) -> PredictingData:
        """Return empty splits, for systems whose weights are loaded afterwards."""
        return PredictingData([], [], [])

    def answer(
        self, trained: TrainedSystem, rows: Sequence[Mapping[str, Any]], on_progress: OnProgress
    ) -> list[Row]:
        """Return for each row the share of tokens that are the first choice, with the tokens and their ranks.

        The share is None for a text without a code token, or one that cannot be lexed in the task's language.
        """
        system: Predictor = trained.system
        task: PredictingTask = trained.task_config.build()
        items = [task.code(str(number), str(row["text"])) for number, row in enumerate(rows)]
        ranks = iter(system.ranks([item for item in items if item.lexemes], on_progress))
        return [_answer(item, next(ranks)) if item.lexemes else dict(_UNREADABLE) for item in items]


def _row(item: Code, rank_T: NDArray[np.float64]) -> Row:
    """Return the text, its tokens and their ranks; the rank of a token that was not among the choices is None."""
    return {
        "key": item.key,
        "source": item.text,
        "tokens": [one.text for one in item.lexemes],
        "ranks": [int(rank) if np.isfinite(rank) else None for rank in rank_T],
    }


def _answer(item: Code, rank_T: NDArray[np.float64]) -> Row:
    row = _row(item, rank_T)
    return {
        "prediction": float((rank_T == 1).mean()),
        "tokens": row["tokens"],
        "ranks": row["ranks"],
    }
