"""What harmless changes of the test code cost a system."""

import numpy as np
import pytest

from finetune.experiment.jobs import StopRequested
from finetune.experiment.robustness import RobustnessConfig, robustness_of
from finetune.metrics.measured import Measured
from finetune.metrics.ranking import mrr
from finetune.modalities.base import OnProgress
from finetune.modalities.predicting import PredictingData, PredictingEvaluation
from finetune.modalities.ranking import Match, Pool, RankingData, RankingEvaluation
from finetune.modalities.writing import Pair, WritingData, WritingEvaluation
from finetune.systems.predictors.ngram import NgramPredictorConfig
from finetune.systems.rankers.lexical import LexicalRankerConfig
from finetune.tasks.token_completion import TokenCompletion, TokenCompletionConfig
from finetune.tasks.translation import Translation, TranslationConfig

_TOPICS = ("apples", "pears", "plums", "grapes", "cherries", "melons")
_FUNCTIONS = [
    f"def count(items):\n    {topic} = 0\n    for one in items:\n        {topic} += one\n    return {topic}\n"
    for topic in _TOPICS
]


class Task:
    """MRR."""

    def evaluate(self, pool: Pool, score_QC: np.ndarray) -> list[Measured]:
        return [mrr(pool, score_QC)]


def ranking_evaluation() -> RankingEvaluation:
    pool = Pool(list(_TOPICS), [f"count {topic}" for topic in _TOPICS], _FUNCTIONS, [(n,) for n in range(6)])
    return RankingEvaluation(Task(), RankingData([Match("a", "b", "c")], pool, pool), 10)  # type: ignore[arg-type]


def test_renaming_takes_from_a_counter_of_words_what_it_went_by_and_dead_code_little() -> None:
    evaluation = ranking_evaluation()
    system = LexicalRankerConfig().build(None, RankingData([], evaluation.test_pool, evaluation.test_pool), 0)
    config = RobustnessConfig(transforms=("rename", "swap_branches"), language="python")
    found = robustness_of(config, evaluation, system, seed=0)
    assert set(found) == {"rename"}, "no function has branches to swap"
    renamed = found["rename"]
    assert renamed["num_items"] == 6
    assert renamed["before"] == 1.0
    assert renamed["after"] < 0.5
    assert renamed["difference"] == pytest.approx(renamed["after"] - renamed["before"])
    assert renamed["low"] <= renamed["difference"] <= renamed["high"] < 0


def test_a_writer_is_judged_on_the_same_items_before_and_after() -> None:
    class Shouter:
        learner = None

        def write(self, sources: list[tuple[str, str | None]], on_progress: object) -> list[str]:
            return [text.upper() for text, _ in sources]

    items = [Pair(str(n), text, (text.upper(),)) for n, text in enumerate([*_FUNCTIONS, "not python ("])]
    task = Translation(TranslationConfig(folder="nowhere"))  # type: ignore[arg-type]
    evaluation = WritingEvaluation(task, WritingData([], items, items), 10)
    found = robustness_of(RobustnessConfig(transforms=("for_to_while",)), evaluation, Shouter(), seed=0)[
        "for_to_while"
    ]  # type: ignore[arg-type]
    assert found["num_items"] == 6
    assert found["before"] == pytest.approx(100.0)
    assert found["after"] < 100.0


def test_a_predictor_is_judged_by_the_tokens_of_the_changed_texts() -> None:
    task = TokenCompletion(TokenCompletionConfig())
    items = [task.code(str(n), text) for n, text in enumerate([*_FUNCTIONS, "count = 1\n"])]
    system = NgramPredictorConfig(order=2).build(None, PredictingData(items, [], []), 0)  # type: ignore[arg-type]
    evaluation = PredictingEvaluation(task, PredictingData(items, items, items), 10)
    found = robustness_of(RobustnessConfig(transforms=("rename",)), evaluation, system, seed=0)["rename"]
    assert found["num_items"] == 6
    assert found["before"] > found["after"] > 0, "the new names were never counted, the rest was"
    spaced = TokenCompletion(TokenCompletionConfig(folder="f", test="t.txt"))  # type: ignore[arg-type]
    evaluation = PredictingEvaluation(spaced, PredictingData(items, items, items), 10)
    assert robustness_of(RobustnessConfig(transforms=("rename",)), evaluation, system, seed=0) == {}


def test_a_stop_is_heard_while_changed_code_is_judged() -> None:
    evaluation = ranking_evaluation()
    system = LexicalRankerConfig().build(None, RankingData([], evaluation.test_pool, evaluation.test_pool), 0)
    reported: list[tuple[str, int]] = []

    def watch(what: str, num_items: int) -> OnProgress:
        reported.append((what, num_items))
        if len(reported) == 2:
            raise StopRequested
        return lambda _: None

    with pytest.raises(StopRequested):
        robustness_of(
            RobustnessConfig(transforms=("rename", "dead_code")), evaluation, system, 0, watch=watch
        )
    assert reported == [("before rename", 6), ("after rename", 6)]
