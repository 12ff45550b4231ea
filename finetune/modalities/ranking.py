"""Ranking candidates for queries: data, protocols, evaluation, perturbation and answers.

Its tasks are code search, text search and clone retrieval.

Shapes: Q queries, C candidates.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from cluster.memory import check_memory
from cluster.storage import fingerprint
from finetune.metrics.measured import Measured
from finetune.metrics.ranking import relevant_ranks
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

_BEST_KEPT = 20
"""The number of best candidates of a query that are saved with the predictions."""
_MATRICES = 2
"""The number of score matrices in memory at once: a ranker's, and the one it is computed from."""


@dataclass(frozen=True)
class Match:
    """A query and a text that it should find. Matches of one `group` are not used as negatives of each other."""

    query: str
    found: str
    group: str
    hard_negatives: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pool:
    """Queries that each search all `candidates`.

    `relevant[q]` are the numbers of the candidates that query q should find. If `excluded[q]` is a candidate's number,
    that candidate is the query itself and is not ranked.
    """

    query_keys: Sequence[str]
    queries: Sequence[str]
    candidates: Sequence[str]
    relevant: Sequence[tuple[int, ...]]
    excluded: Sequence[int | None] | None = None

    def of_queries(self, numbers: Sequence[int]) -> "Pool":
        """Return the pool with some of the queries and all candidates."""
        return Pool(
            [self.query_keys[number] for number in numbers],
            [self.queries[number] for number in numbers],
            self.candidates,
            [self.relevant[number] for number in numbers],
            None if self.excluded is None else [self.excluded[number] for number in numbers],
        )


_NO_POOL = Pool([], [], [], [])
RankingData = TaskData[Match, Pool]


class RankingTask(Protocol):
    """A task whose systems rank candidates for queries."""

    reads_corpus: bool
    """Whether it may make data from a corpus."""

    def files(self) -> list[Path]:
        """List the files that `load` reads besides the corpus, for fingerprints; all of them must exist."""
        ...

    def load(self, source: Source) -> RankingData:
        """Load the data. Raise UserError if it cannot be used."""
        ...

    def evaluate(self, pool: Pool, score_QC: NDArray[np.float64]) -> list[Measured]:
        """Return the metrics, the headline first."""
        ...


class Ranker(Protocol):
    """A system that ranks candidates for queries."""

    @property
    def learner(self) -> Learner | None:
        """The network to train and its data; None if nothing is trained."""
        ...

    def scores(
        self, queries: Sequence[str], candidates: Sequence[str], on_progress: OnProgress
    ) -> NDArray[np.float64]:
        """Return the scores, [number of queries, number of candidates]; higher is better."""
        ...


class RankingEvaluation(Evaluation):
    """Evaluation of systems that rank all candidates for every query."""

    def __init__(self, task: RankingTask, data: RankingData, valid_items: int) -> None:
        self.task, self.test_pool = task, data.test
        self._valid = data.valid.of_queries(spread(range(len(data.valid.queries)), valid_items))
        self.num_valid_items, self.num_test_items = len(self._valid.queries), len(data.test.queries)

    def validate(self, system: Ranker) -> float:
        """Return the headline metric on a part of the validation split."""
        return self.task.evaluate(self._valid, _scores(system, self._valid, no_progress))[0].value

    def test(self, system: Ranker, on_progress: OnProgress) -> Answers:
        """Evaluate the system on the whole test split."""
        pool = self.test_pool
        score_QC = _scores(system, pool, on_progress)
        return Answers(self.task.evaluate(pool, score_QC), list(_ranked_rows(pool, score_QC)), cut_of(system))

    def before_and_after(
        self, system: Ranker, change: Perturbation, threshold: float | None, watch: WatchOf
    ) -> tuple[Measured, Measured] | None:
        """Return the headline metric of the queries with a changed relevant candidate, before and after `change`.

        Before, they search the unchanged pool; after, the pool in which every candidate that can be is changed.
        """
        pool = self.test_pool
        changed_C = [transform(change.kind, code, change.language, change.seed) for code in pool.candidates]
        touched = [
            number
            for number, relevant in enumerate(pool.relevant)
            if any(changed_C[one] is not None for one in relevant)
        ]
        if not touched:
            return None
        after_C = [old if new is None else new for old, new in zip(pool.candidates, changed_C, strict=True)]

        def measured(part: Pool, which: str) -> Measured:
            on_progress = watch(f"{which} {change.kind}", len(part.queries))
            return self.task.evaluate(part, _scores(system, part, on_progress))[0]

        before = pool.of_queries(touched)
        return measured(before, "before"), measured(replace(before, candidates=after_C), "after")


class Ranking(Modality):
    """The modality of systems that rank candidates for queries."""

    def evaluation(
        self, task: RankingTask, data: RankingData, valid_items: int, threshold: float | None = None
    ) -> RankingEvaluation:
        """Build the evaluation of a task with its data."""
        return RankingEvaluation(task, data, valid_items)

    def columns(self, task_config: Any) -> Columns:
        """Return the columns of the query and the candidate."""
        return Columns(("query", "candidate"))

    def no_data(self, task_config: Any, num_labels: int) -> RankingData:
        """Return empty splits, for systems whose weights are loaded afterwards."""
        return RankingData([], _NO_POOL, _NO_POOL)

    def answer(
        self, trained: TrainedSystem, rows: Sequence[Mapping[str, Any]], on_progress: OnProgress
    ) -> list[Row]:
        """Return the score of each query with its own candidate; equal texts are encoded once.

        Raise UserError if the scores of the rows do not fit into memory.
        """
        system: Ranker = trained.system
        queries = list(dict.fromkeys(str(row["query"]) for row in rows))
        candidates = list(dict.fromkeys(str(row["candidate"]) for row in rows))
        check_memory(
            _MATRICES * 8 * len(queries) * len(candidates),
            torch.device("cpu"),
            f"comparing {len(queries):,} queries with {len(candidates):,} candidates",
            "give fewer rows at a time",
        )
        score_QC = system.scores(queries, candidates, on_progress)
        query_of = {text: number for number, text in enumerate(queries)}
        candidate_of = {text: number for number, text in enumerate(candidates)}
        return [
            {"prediction": float(score_QC[query_of[str(row["query"])], candidate_of[str(row["candidate"])]])}
            for row in rows
        ]


def _scores(system: Ranker, pool: Pool, on_progress: OnProgress) -> NDArray[np.float64]:
    return system.scores(pool.queries, pool.candidates, on_progress)


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
