"""What is kept of a test's answers is enough to compute the metrics again."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetune.experiment.pictures import draw_pictures
from finetune.metrics.measured import Measured
from finetune.metrics.ranking import map_at_r, mrr, recall_at
from finetune.modalities.base import OnProgress
from finetune.modalities.ranking import Match, Pool, RankingData, RankingEvaluation
from finetune.modalities.writing import Pair, WritingData, WritingEvaluation
from finetune.systems.writers.alignment import Alignment
from finetune.tasks.translation import Translation, TranslationConfig

_NUM_CANDIDATES = 6


class _Task:
    def evaluate(self, pool: Pool, score_QC: np.ndarray) -> list[Measured]:
        return [mrr(pool, score_QC), recall_at(pool, score_QC, 2), map_at_r(pool, score_QC)]


class _Scorer:
    learner = None

    def __init__(self, score_QC: np.ndarray) -> None:
        self._score_QC = score_QC

    def scores(self, queries: object, candidates: object, on_progress: OnProgress) -> np.ndarray:
        return self._score_QC


class _Echo:
    """Writes its source, and looks at it."""

    learner = None

    def write(self, sources: list[tuple[str, str | None]], on_progress: OnProgress) -> list[str]:
        return [source for source, _ in sources]

    def alignment(self, source: str, target: str | None = None) -> Alignment:
        return Alignment(("a",), ("a",), np.ones((1, 1), dtype=np.float32))


@given(
    st.lists(st.sets(st.integers(1, _NUM_CANDIDATES - 1), min_size=1), min_size=1, max_size=3),
    st.lists(st.integers(-1, 1), min_size=3 * _NUM_CANDIDATES, max_size=3 * _NUM_CANDIDATES),
    st.booleans(),
)
def test_ranks_give_every_metric_again_ties_included(
    relevant: list[set[int]], scores: list[int], excludes: bool
) -> None:
    keys = [str(number) for number in range(len(relevant))]
    candidates = [str(number) for number in range(_NUM_CANDIDATES)]
    pool = Pool(
        keys, keys, candidates, [tuple(one) for one in relevant], [0] * len(keys) if excludes else None
    )
    evaluation = RankingEvaluation(_Task(), RankingData([Match("a", "b", "c")], pool, pool), 10)  # type: ignore[arg-type]
    score_QC = np.array(scores, dtype=np.float64).reshape(3, -1)[: len(keys)]
    answers = evaluation.test(_Scorer(score_QC), lambda done: None)
    rank_lists = [row["ranks"] for row in answers.rows]
    again = [
        [1 / ranks[0] for ranks in rank_lists],
        [np.mean(np.array(ranks) <= 2) for ranks in rank_lists],
        [
            sum((n + 1) / rank for n, rank in enumerate(ranks) if rank <= len(ranks)) / len(ranks)
            for ranks in rank_lists
        ],
    ]
    assert [float(np.mean(one)) for one in again] == [pytest.approx(one.value) for one in answers.measured]


def test_items_that_leaked_are_marked() -> None:
    items = [Pair("a", "x", ("x",), leaked=True), Pair("b", "y", ("z",))]
    task = Translation(TranslationConfig(folder="nowhere"))  # type: ignore[arg-type]
    answers = WritingEvaluation(task, WritingData([], items, items), 10).test(_Echo(), lambda done: None)
    assert [row.get("leaked", False) for row in answers.rows] == [True, False]


def test_pictures_stay_in_their_folder_whatever_items_are_called(tmp_path: Path) -> None:
    keys = ["repo/pkg/a.py:f", "repo_pkg/a.py:f", "../../out", "/absolute", "k" * 300, ""]
    items = [Pair(key, "x", ("x",)) for key in keys]
    task = Translation(TranslationConfig(folder="nowhere"))  # type: ignore[arg-type]
    draw_pictures(
        _Echo(), WritingEvaluation(task, WritingData([], items, items), 10), tmp_path / "job" / "pictures"
    )
    found = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert len(found) == len(keys)
    assert {path.parent for path in found} == {Path("job/pictures")}
    assert found[0].name == "1-repo_pkg_a.py_f.svg"
