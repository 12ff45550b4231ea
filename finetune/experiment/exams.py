"""How a system is put to a task's test: what it is asked, what is kept of its answers, what is measured.

Shapes: Q queries, C candidates or labels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from cluster.storage import fingerprint
from finetune.examples import (
    Code,
    Labelled,
    LabellingData,
    Pool,
    PredictingData,
    RankingData,
    WritingData,
)
from finetune.metrics.measured import Measured
from finetune.metrics.ranking import relevant_ranks
from finetune.systems.base import Asks, Labeller, OnProgress, Predictor, Ranker, System, Writer, cut_of
from finetune.tasks.base import LabellingTask, PredictingTask, RankingTask, Task, WritingTask
from finetune.tasks.labelling import chosen_threshold, given_labels

_BEST_KEPT = 20
"""Candidates of a query that predictions name."""

_MOST_TUNED_ON = 2000
"""Items of the validation split by which a threshold is chosen."""

Row = dict[str, Any]
"""One line of predictions.jsonl."""


@dataclass(frozen=True)
class Answers:
    """What a system made of the test split: metrics, the headline first, and a row for every item."""

    measured: list[Measured]
    rows: list[Row]
    cut: dict[str, int]
    """How many texts were longer than the system reads or writes, by what they were."""
    threshold: float | None = None
    """By which labels were given; see `labelling.given_labels`."""


class Exam(Protocol):
    """A task with its data, whatever it asks for."""

    @property
    def num_test_items(self) -> int:
        """Of the test split."""
        ...

    @property
    def num_valid_items(self) -> int:
        """Of the validation split, that `validate` judges."""
        ...

    def validate(self, system: System) -> float:
        """The headline metric on a part of the validation split."""
        ...

    def test(self, system: System, on_progress: OnProgress) -> Answers:
        """All of the test split."""
        ...


class WritingExam:
    """Texts for texts."""

    def __init__(self, task: WritingTask, data: WritingData, valid_items: int) -> None:
        self.task, self.test_items = task, list(data.test)
        self._valid = _spread(data.valid, valid_items)
        self.num_valid_items = len(self._valid)
        self.num_test_items = len(self.test_items)

    def validate(self, system: System) -> float:
        """See `Exam`."""
        written = cast(Writer, system).write([(one.source, one.suffix) for one in self._valid], _silent)
        return self.task.quick(self._valid, written).value

    def test(self, system: System, on_progress: OnProgress) -> Answers:
        """See `Exam`."""
        items = self.test_items
        written = cast(Writer, system).write([(one.source, one.suffix) for one in items], on_progress)
        rows = [
            {"key": one.key, "source": one.source, "written": text, "references": list(one.references)}
            | ({"suffix": one.suffix} if one.suffix is not None else {})
            | ({"leaked": True} if one.leaked else {})
            for one, text in zip(items, written, strict=True)
        ]
        return Answers(self.task.judge(items, written), rows, cut_of(system))


class RankingExam:
    """Candidates for queries."""

    def __init__(self, task: RankingTask, data: RankingData, valid_items: int) -> None:
        self.task, self.test_pool = task, data.test
        self._valid = data.valid.of_queries(_spread(range(len(data.valid.queries)), valid_items))
        self.num_valid_items = len(self._valid.queries)
        self.num_test_items = len(data.test.queries)

    def validate(self, system: System) -> float:
        """See `Exam`."""
        return self.task.judge(self._valid, _scores(system, self._valid, _silent))[0].value

    def test(self, system: System, on_progress: OnProgress) -> Answers:
        """See `Exam`."""
        score_QC = _scores(system, self.test_pool, on_progress)
        return Answers(
            self.task.judge(self.test_pool, score_QC),
            list(_ranked_rows(self.test_pool, score_QC)),
            cut_of(system),
        )


class LabellingExam:
    """Labels for texts."""

    def __init__(
        self, task: LabellingTask, data: LabellingData, valid_items: int, threshold: float | None = None
    ) -> None:
        """`threshold` is a system's that was chosen before; None chooses one where the task has it so."""
        self.task, self.test_items, self._threshold = task, list(data.test), threshold
        self._valid = _spread(data.valid, valid_items)
        self.num_valid_items = len(self._valid)
        self._tuning = _spread(data.valid, _MOST_TUNED_ON)
        self.num_test_items = len(self.test_items)

    def validate(self, system: System) -> float:
        """See `Exam`."""
        found_NC = _probabilities(system, self._valid, _silent)
        return self.task.judge(self._valid, found_NC)[0].value

    def test(self, system: System, on_progress: OnProgress) -> Answers:
        """See `Exam`."""
        threshold = self._threshold
        if threshold is None and self.task.chooses_threshold:
            threshold = chosen_threshold(self._tuning, _probabilities(system, self._tuning, _silent))
        found_NC = _probabilities(system, self.test_items, on_progress)
        given_N = given_labels(found_NC, threshold)
        rows = [
            {
                "key": one.key,
                "texts": list(one.texts),
                "label": one.label,
                "given": int(given),
                "probabilities": _rounded(found_C),
            }
            for one, given, found_C in zip(self.test_items, given_N, found_NC, strict=True)
        ]
        measured = self.task.judge(self.test_items, found_NC, threshold)
        return Answers(measured, rows, cut_of(system), threshold)


class PredictingExam:
    """The tokens of codes."""

    def __init__(self, task: PredictingTask, data: PredictingData, valid_items: int) -> None:
        self.task, self.test_items = task, list(data.test)
        self._valid = _spread(data.valid, valid_items)
        self.num_valid_items = len(self._valid)
        self.num_test_items = len(self.test_items)

    def validate(self, system: System) -> float:
        """See `Exam`."""
        return self.task.judge(self._valid, cast(Predictor, system).ranks(self._valid, _silent))[0].value

    def test(self, system: System, on_progress: OnProgress) -> Answers:
        """See `Exam`."""
        rank_DT = cast(Predictor, system).ranks(self.test_items, on_progress)
        rows = [token_row(one, rank_T) for one, rank_T in zip(self.test_items, rank_DT, strict=True)]
        return Answers(self.task.judge(self.test_items, rank_DT), rows, cut_of(system))


def token_row(item: Code, rank_T: NDArray[np.float64]) -> Row:
    """The text, its tokens and their ranks; null for a token that was no choice."""
    return {
        "key": item.key,
        "source": item.text,
        "tokens": [one.text for one in item.lexemes],
        "ranks": [int(rank) if np.isfinite(rank) else None for rank in rank_T],
    }


def exam_of(asks: Asks, task: Task, data: Any, valid_items: int, threshold: float | None = None) -> Exam:
    """`asks` is what the task's kind asks for; `threshold` see `LabellingExam`."""
    match asks:
        case "write":
            return WritingExam(cast(WritingTask, task), data, valid_items)
        case "rank":
            return RankingExam(cast(RankingTask, task), data, valid_items)
        case "label":
            return LabellingExam(cast(LabellingTask, task), data, valid_items, threshold)
        case "predict":
            return PredictingExam(cast(PredictingTask, task), data, valid_items)


def _spread(items: Sequence[Any], most: int) -> list[Any]:
    """At most so many items, evenly over all: files are often sorted."""
    if len(items) <= most:
        return list(items)
    return [items[number * len(items) // most] for number in range(most)]


def _probabilities(system: System, items: Sequence[Labelled], on_progress: OnProgress) -> NDArray[np.float64]:
    return cast(Labeller, system).probabilities([one.texts for one in items], on_progress)


def _rounded(probability_C: NDArray[np.float64]) -> list[float]:
    return [round(float(one), 6) for one in probability_C]


def _scores(system: System, pool: Pool, on_progress: OnProgress) -> NDArray[np.float64]:
    return cast(Ranker, system).scores(pool.queries, pool.candidates, on_progress)


def _ranked_rows(pool: Pool, score_QC: NDArray[np.float64]) -> Iterator[Row]:
    candidates = fingerprint(list(pool.candidates))
    for number, (key, query) in enumerate(zip(pool.query_keys, pool.queries, strict=True)):
        score_C = np.where(np.isnan(score_QC[number]), -np.inf, score_QC[number])
        excluded = pool.excluded[number] if pool.excluded is not None else None
        if excluded is not None:
            score_C[excluded] = -np.inf
        best = np.argsort(-score_C, kind="stable")[:_BEST_KEPT]
        yield {
            "key": key,
            "query": query,
            "best": [[int(one), round(float(score_C[one]), 6)] for one in best if np.isfinite(score_C[one])],
            "relevant": list(pool.relevant[number]),
            "ranks": relevant_ranks(pool, score_QC[number], number).tolist(),
            "candidates": candidates,
        }


def _silent(_: int) -> None:
    """Nobody watches an evaluation during training."""
