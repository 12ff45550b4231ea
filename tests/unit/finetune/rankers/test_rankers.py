"""Systems that rank: the bi-encoder and its contrast, hard negatives, BM25 and TF-IDF."""

import math

import numpy as np
import pytest
import torch

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from finetune.layers.conba import ConbaConfig
from finetune.layers.pooling import PoolingConfig
from finetune.lexical import sub_tokens
from finetune.modalities.ranking import Match, Pool, RankingData
from finetune.systems.base import Base
from finetune.systems.rankers.bi_encoder import (
    BiEncoder,
    BiEncoderConfig,
    ZeroShotEncoderConfig,
    masked_candidates,
    with_hard_negatives,
)
from finetune.systems.rankers.bm25 import Bm25
from finetune.systems.rankers.lexical import LexicalRankerConfig
from finetune.systems.text_encoder import Truncator
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.weights import ModelDescription

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "lam", "mu"]
MATCHES = [
    Match(f"find {word}", f"def get():\n    return '{word}'\n", str(i)) for i, word in enumerate(WORDS)
]
EMPTY = Pool([], [], [], [])


def nothing(done: int) -> None:
    pass


@pytest.fixture
def base(corpus: PreparedCorpus, model: TwoStreamTransformer) -> Base:
    return Base(ModelDescription.of(model, 64), corpus.tokenizer, None, torch.device("cpu"))


def data(matches: list[Match]) -> RankingData:
    return RankingData(matches, EMPTY, EMPTY)


def vector(system: BiEncoder, text: str) -> torch.Tensor:
    assert system.learner is not None
    truncator = Truncator(system.learner._truncator._tokenizer, torch.device("cpu"))
    encoded: torch.Tensor = system.learner.module.encoder(truncator.pad(truncator.tokens([text], 256, None)))
    return encoded[0]


def test_loss_is_infonce_written_out(base: Base) -> None:
    matches = [*MATCHES[:3], Match("find alpha twice", "x = 1", "0")]
    system = BiEncoderConfig(temperature=0.1).build(base, data(matches), seed=0)
    assert system.learner is not None
    module = system.learner.module.eval()
    loss = module(system.learner.batch([0, 1, 3], draw=0))
    texts = [matches[i] for i in (0, 1, 3)]
    # Rows 0 and 2 are of one group: no negatives for each other.
    with torch.no_grad():
        vectors = [[vector(system, one.query), vector(system, one.found)] for one in texts]
    cosine = [[float(torch.cosine_similarity(q[0], c[1], dim=0)) / 0.1 for c in vectors] for q in vectors]
    negatives = {0: [1], 1: [0, 2], 2: [1]}
    forward = [
        math.log(sum(math.exp(cosine[i][j]) for j in [i, *negatives[i]])) - cosine[i][i] for i in range(3)
    ]
    backward = [
        math.log(sum(math.exp(cosine[j][i]) for j in [i, *negatives[i]])) - cosine[i][i] for i in range(3)
    ]
    assert loss.item() == pytest.approx((sum(forward) + sum(backward)) / 6, rel=1e-4)


def test_same_group_and_same_text_are_no_negatives() -> None:
    matches = [Match("q", "a", "1"), Match("q", "b", "1"), Match("q", "a", "2"), Match("q", "c", "3")]
    masked = masked_candidates(matches, ["a", "d"])
    assert masked.tolist() == [
        [False, True, True, False, True, False],
        [True, False, False, False, False, False],
        [True, False, False, False, True, False],
        [False, False, False, False, False, False],
    ]


@pytest.mark.parametrize(
    ("kind", "network"),
    [
        ("mean", None),
        ("conba", None),
        ("mean", "aligned_rnn"),
        ("mean", "transformer"),
        ("conba", "transformer"),
    ],
)
def test_it_learns_which_candidate_belongs_to_which_query(base: Base, kind: str, network: str | None) -> None:
    pooling = PoolingConfig.model_validate({"kind": kind, "conba": ConbaConfig(dim=32)})
    another = {"start": "scratch", "network": {"kind": network}} if network else {}
    # Queries share no word with what they should find: only training can tell.
    matches = [Match(WORDS[i], WORDS[6 + i], str(i)) for i in range(6)]
    config = BiEncoderConfig.model_validate(
        {"pooling": pooling, "query_tokens": 16, "candidate_tokens": 16, "hard_negatives": 1, **another}
    )
    system = config.build(base, data(matches), seed=0)
    learner = system.learner
    assert learner is not None
    optimizer = torch.optim.AdamW([p for p in learner.module.parameters() if p.requires_grad], lr=2e-3)
    for step in range(25):
        optimizer.zero_grad()
        learner.module(learner.batch(range(6), step)).backward()
        optimizer.step()
    learner.module.eval()
    scores = system.scores([one.query for one in matches], [one.found for one in matches], nothing)
    assert (scores.argmax(axis=1) == np.arange(6)).all()


def test_batches_are_a_function_of_the_draw(base: Base) -> None:
    matches = [Match(one.query, one.found, one.group, tuple(WORDS)) for one in MATCHES]
    system = BiEncoderConfig(hard_negatives=2).build(base, data(matches), seed=0)
    assert system.learner is not None
    first, again, other = (system.learner.batch([0, 1], draw).candidates.tokens_BL for draw in (1, 1, 2))
    assert torch.equal(first, again)
    assert first.shape != other.shape or not torch.equal(first, other)
    assert first.shape[0] == 2 * 3


def test_without_training_matches_there_is_no_learner_and_cut_texts_are_counted(base: Base) -> None:
    system = BiEncoderConfig(query_tokens=2).build(base, data([]), seed=0)
    assert system.learner is None
    done: list[int] = []
    scores = system.scores(["import os, sys, re", "x"], ["import os", "y", ""], done.append)
    assert scores.shape == (2, 3)
    assert not scores[:, 2].any()
    assert done[-1] == 2
    assert system.cut == {"queries": 1, "candidates": 0}


def test_zero_shot_vectors_are_those_of_the_model_before_training(base: Base) -> None:
    config = ZeroShotEncoderConfig(pooling=PoolingConfig(layers="top"))
    system = config.build(base, data(MATCHES), seed=0)
    assert config.kind == "zero_shot_encoder"
    assert system.learner is None
    assert not system.module.training
    untrained = BiEncoderConfig(pooling=PoolingConfig(layers="top")).build(base, data([]), seed=0)
    texts = [one.query for one in MATCHES]
    np.testing.assert_array_equal(
        system.scores(texts, texts, nothing), untrained.scores(texts, texts, nothing)
    )


def test_a_head_without_parameters_cannot_be_trained(base: Base) -> None:
    with pytest.raises(UserError, match="adaptation=head trains nothing with mean pooling"):
        BiEncoderConfig(adaptation="head").build(base, data(MATCHES), seed=0)


def test_hard_negatives_are_near_wrong_and_of_another_group() -> None:
    matches = [
        Match("read file lines", "read file lines now", "1"),
        Match("read file", "read file bytes", "2"),
        Match("open socket", "read lines", "1"),
        Match("named", "x", "3", ("given",)),
        Match("other", "unrelated words", "4"),
    ]
    mined = with_hard_negatives(matches, wanted=1)
    assert mined[0].hard_negatives[0] == "read file bytes"
    assert "read lines" not in mined[0].hard_negatives  # of the same group
    assert mined[3].hard_negatives == ("given",)
    assert all(one.found not in one.hard_negatives for one in mined)


def bm25_by_hand(queries: list[str], candidates: list[str], k1: float, b: float) -> list[list[float]]:
    words = [sub_tokens(text) for text in candidates]
    mean = sum(map(len, words)) / len(words)
    found = []
    for query in queries:
        row = []
        for own in words:
            score = 0.0
            for word in set(sub_tokens(query)):
                frequency = sum(word in other for other in words)
                idf = math.log(1 + (len(words) - frequency + 0.5) / (frequency + 0.5))
                count = own.count(word)
                score += idf * count * (k1 + 1) / (count + k1 * (1 - b + b * len(own) / mean))
            row.append(score)
        found.append(row)
    return found


def test_bm25_is_its_formula() -> None:
    candidates = ["readFile file", "write_file(path)", "a b c d read", "", "FILE"]
    queries = ["read the file file", "path", "nothing known", ""]
    ours = np.concatenate(list(Bm25(candidates, 0.9, 0.4).scores(queries)))
    np.testing.assert_allclose(ours, bm25_by_hand(queries, candidates, 0.9, 0.4), rtol=1e-12)


def test_bm25_over_wordless_candidates_finds_nothing() -> None:
    assert not np.concatenate(list(Bm25(["", "()"]).scores(["a"]))).any()


@pytest.mark.parametrize("method", ["bm25", "tfidf"])
def test_lexical_rankers_find_shared_words(method: str) -> None:
    config = LexicalRankerConfig.model_validate({"method": method})
    system = config.build(None, data(MATCHES), seed=0)
    scores = system.scores([one.query for one in MATCHES], [one.found for one in MATCHES], nothing)
    assert (scores.argmax(axis=1) == np.arange(12)).all()
