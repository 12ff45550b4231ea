"""Networks as predictors: which tokens make a lexeme, what a prediction may see, whether it learns."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from finetune.lexing import Lexeme, python_lexemes
from finetune.modalities.predicting import Code, PredictingData
from finetune.systems.predictors.left_to_right import (
    LeftToRightConfig,
    LeftToRightPredictor,
    lanes_at_once,
    lexeme_ranks,
    ranks_among,
    side_by_side,
)
from finetune.systems.predictors.ngram import NgramPredictorConfig
from pretrain.model.config import (
    AbsoluteLearnedPositions,
    AbsoluteSinusoidalPositions,
    PositionsConfig,
)
from tests.unit.finetune.systems.toys import toy_base, train

_NETWORKS = (None, {"kind": "aligned_rnn", "dropout": 0.0}, {"kind": "transformer"})
"""None is the base model's; the others take its place."""
_TEXT = "größe = f(a1)  # x\nif größe:\n    pass\n"


def code(text: str) -> Code:
    return Code("k", text, partial(python_lexemes, text))


def predictor(
    corpus: PreparedCorpus, texts: list[str], positions: PositionsConfig | None = None, **config: Any
) -> LeftToRightPredictor:
    items = [code(text) for text in texts]
    base = toy_base(corpus.tokenizer, positions, segment_tokens=8)
    settings = LeftToRightConfig.model_validate({"start": "scratch", **config})
    made = settings.build(base, PredictingData(items, items, items), 0)
    made.learner.module.eval()
    return made


@given(st.lists(st.integers(1, 7), min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_a_lexeme_is_as_bad_as_the_worst_token_that_overlaps_it(sizes: list[int], random: object) -> None:
    num_bytes = sum(sizes)
    rank_T = np.array([float(random.randint(1, 50)) for _ in sizes])  # type: ignore[attr-defined]
    owner = [token for token, size in enumerate(sizes) for _ in range(size)]
    lexemes = [one for one in python_lexemes(_TEXT) if one.end_byte <= num_bytes]
    found = lexeme_ranks(rank_T, np.cumsum(sizes), lexemes)
    assert found.tolist() == [max(rank_T[owner[one.start_byte : one.end_byte]]) for one in lexemes]


def test_equal_scores_count_against_all_but_the_first_choice() -> None:
    score_XV = torch.tensor([[2.0, 2.0, 1.0, 1.0]]).repeat(4, 1)
    assert ranks_among(score_XV, torch.arange(4)).tolist() == [1, 2, 4, 4]


def scores(made: LeftToRightPredictor, tokens: list[int], beside: list[int] | None = None) -> torch.Tensor:
    """[T, V] of the first lane."""
    lanes = [np.array(tokens), *([np.array(beside)] if beside else [])]
    module = made.learner.module
    with torch.inference_mode():
        parts = [one[0][0] for one in module.predictions(side_by_side(lanes, torch.device("cpu")))]
    return torch.cat(parts)[: len(tokens)]


@pytest.mark.parametrize("network", _NETWORKS)
def test_a_prediction_sees_what_is_before_it_in_its_text_and_nothing_else(
    corpus: PreparedCorpus, network: dict[str, Any] | None
) -> None:
    made = predictor(corpus, [_TEXT], network=network)
    text = list(range(5, 25))
    before = scores(made, text)
    torch.testing.assert_close(before, scores(made, text, beside=[7] * 31), msg="lanes are apart")
    later = scores(made, [*text[:11], 50, *text[12:]])
    torch.testing.assert_close(before[:12], later[:12])
    assert not torch.allclose(before[12], later[12])
    assert not torch.allclose(before[17], later[17]), "memory carries it into the next segment"


def test_other_relative_positions_have_the_base_models_memory(corpus: PreparedCorpus) -> None:
    base = toy_base(corpus.tokenizer, segment_tokens=8)
    settings = LeftToRightConfig.model_validate({"start": "scratch", "positions": {"kind": "rotary"}})
    made = settings.build(base, PredictingData([code(_TEXT)], [], []), 0)
    made.learner.module.eval()
    one, other = (scores(made, [first, *range(9, 20)]) for first in (5, 6))
    assert not torch.equal(one[8:], other[8:]), "the second segment does not depend on the first"


def test_ranks_are_places_among_sorted_scores_whatever_stands_beside(corpus: PreparedCorpus) -> None:
    texts = [_TEXT, "x = 1\n" * 9, "", "def f(a):\n    return a + 1\n"]
    made = predictor(corpus, [_TEXT])
    reported: list[int] = []
    found = made.ranks([code(text) for text in texts], reported.append)
    assert reported[-1] == 4
    for text, rank_I in zip(texts, found, strict=True):
        tokens = corpus.tokenizer.encode(text).astype(np.int64)
        if not len(tokens):
            assert not len(rank_I)
            continue
        order_TV = scores(made, tokens.tolist()).argsort(dim=-1, descending=True).tolist()
        rank_T = np.array(
            [float(order_V.index(one) + 1) for order_V, one in zip(order_TV, tokens, strict=True)]
        )
        ends = np.cumsum(corpus.tokenizer.token_bytes[tokens])
        assert rank_I.tolist() == lexeme_ranks(rank_T, ends, python_lexemes(text)).tolist()


def test_large_vocabularies_are_scored_a_few_texts_at_a_time() -> None:
    assert lanes_at_once(64, 4096) == 16
    assert lanes_at_once(512, 50_000) == 1
    assert lanes_at_once(128, 65_536) == 4


@pytest.mark.parametrize("network", _NETWORKS)
def test_the_loss_is_the_mean_over_all_tokens_of_all_windows(
    corpus: PreparedCorpus, network: dict[str, Any] | None
) -> None:
    made = predictor(corpus, [_TEXT * 3, "x = 1\n"], window_tokens=20, network=network)
    learner = made.learner
    sizes = [len(corpus.tokenizer.encode(text)) for text in (_TEXT * 3, "x = 1\n")]
    assert sum(learner.lengths_tokens) == sum(sizes)
    assert max(learner.lengths_tokens) == 20
    indices = range(len(learner.lengths_tokens))
    with torch.inference_mode():
        together = float(learner.module(learner.batch(indices, 0)))
        alone = [float(learner.module(learner.batch([index], 0))) for index in indices]
    assert together == pytest.approx(np.average(alone, weights=learner.lengths_tokens), rel=1e-5)


# Sinusoids of absolute positions do not carry over to another phase of the pattern after so few steps.
@pytest.mark.parametrize(("network", "begins"), list(zip(_NETWORKS, ("b = a\n", "b = a\n", ""), strict=True)))
def test_training_learns_a_pattern_that_counting_pairs_cannot(
    corpus: PreparedCorpus, network: dict[str, Any] | None, begins: str
) -> None:
    text = "a = f(a, b)\nb = g(a, b)\n" * 6
    made = predictor(corpus, [text + f"c = {number}\n" for number in range(16)], network=network)
    items = [code(begins + text)]
    assert (made.ranks(items, lambda _: None)[0] == 1).mean() < 0.3
    train(made.learner, steps=100 if network else 150, rate=5e-3, batch=8)
    assert (made.ranks(items, lambda _: None)[0][12:] == 1).mean() > 0.95
    pairs = NgramPredictorConfig(order=2).build(None, PredictingData([code(text)], [], []), 0)  # type: ignore[arg-type]
    assert 0.3 < (pairs.ranks(items, lambda _: None)[0] == 1).mean() < 0.85


def test_segments_longer_than_absolute_positions_reach_are_refused(corpus: PreparedCorpus) -> None:
    positions = AbsoluteLearnedPositions(max_positions=8)
    assert predictor(corpus, [_TEXT], positions).ranks([code(_TEXT)], lambda _: None)
    with pytest.raises(UserError, match="segment_tokens=9 need 9 positions"):
        predictor(corpus, [_TEXT], positions, segment_tokens=9)


def test_a_model_from_random_weights_reads_segments_as_long_as_it_is_asked_to(corpus: PreparedCorpus) -> None:
    made = predictor(corpus, [_TEXT], AbsoluteSinusoidalPositions(), segment_tokens=32)
    assert len(made.ranks([code(_TEXT)], lambda _: None)[0])


def test_weights_too_large_to_compute_with_are_reported(corpus: PreparedCorpus) -> None:
    made = predictor(corpus, [_TEXT])
    with torch.no_grad():
        for parameter in made.learner.module.parameters():
            parameter.mul_(1e30)
    with pytest.raises(
        UserError, match="the scores of tokens are not finite: the model's weights are too large"
    ):
        made.ranks([code(_TEXT)], lambda _: None)


def test_lexemes_at_the_end_of_the_text_have_their_last_token(corpus: PreparedCorpus) -> None:
    found = lexeme_ranks(
        np.array([1.0, 9.0]), np.array([2, 5]), [Lexeme("abc", python_lexemes("a")[0].kind, 2, 5)]
    )
    assert found.tolist() == [9.0]
