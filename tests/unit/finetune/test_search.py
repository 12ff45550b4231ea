"""Code search: pairs, vectors, loss, whether it learns."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from cluster.errors import UserError
from cluster.journal import Journal
from data_prep.prepared import PreparedCorpus
from finetune.config import SearchConfig, TrainingConfig
from finetune.functions import SearchPair
from finetune.tasks.search import (
    BiEncoder,
    ContrastiveLoss,
    SearchData,
    evaluate_search,
    search_data,
    search_summary,
    tfidf_baseline,
    train_search,
)
from pretrain.model.transformer import TwoStreamTransformer
from tests.example_corpus import stdlib_packages, write_corpus

CONFIG = SearchConfig(
    training=TrainingConfig(steps=40, warmup_steps=5, learning_rate=3e-3),
    batch_pairs=8,
    query_tokens=24,
    code_tokens=48,
    num_candidates=20,
    max_groups=3,
)


def test_groups_are_disjoint_and_unseen_in_training(corpus: PreparedCorpus) -> None:
    data = search_data(corpus, CONFIG, 0)
    assert [len(group) for group in data.groups] == [20, 20, 20]
    tested = [pair for group in data.groups for pair in group]
    for part in ("query", "code"):
        texts = {getattr(pair, part) for pair in tested}
        assert len(texts) == 60
        assert not texts & {getattr(pair, part) for pair in data.train_pairs}
    assert data == search_data(corpus, CONFIG, 0)
    assert data != search_data(corpus, CONFIG, 1)


def test_fewer_functions_than_candidates_make_one_group(corpus: PreparedCorpus) -> None:
    data = search_data(corpus, CONFIG.model_copy(update={"num_candidates": 10_000}), 0)
    assert len(data.groups) == 1
    assert 60 <= len(data.groups[0]) < 10_000


def test_too_few_functions_are_refused(tmp_path: Path) -> None:
    splits = {"validation": stdlib_packages(["calendar"]), "test": {"p": {"f.py": "x = 1\n"}}}
    with pytest.raises(
        UserError, match="the test split has only 0 documented functions, code search needs 20"
    ):
        search_data(write_corpus(tmp_path, splits), CONFIG, 0)


def test_vectors_have_length_one_and_padding_does_not_reach_them(
    model: TwoStreamTransformer, corpus: PreparedCorpus
) -> None:
    encoder = BiEncoder(model.eval(), corpus.tokenizer)
    texts = ["return the sum", "def f(a, b):\n    return a + b  # long enough to pad the others", ""]
    together, num_tokens = encoder(texts, max_tokens=40)
    assert num_tokens == 3 * len(corpus.tokenizer.encode(texts[1]))
    alone = torch.cat([encoder([text], max_tokens=40)[0] for text in texts])
    torch.testing.assert_close(together, alone)
    torch.testing.assert_close(together[:2].norm(dim=-1), torch.ones(2))
    cut, _ = encoder([texts[1]], max_tokens=3)
    assert not torch.allclose(cut, together[1:2])


def test_an_epoch_takes_every_pair_once(model: TwoStreamTransformer, corpus: PreparedCorpus) -> None:
    pairs = [SearchPair(f"q{n}", f"c{n}") for n in range(24)]
    loss = ContrastiveLoss(BiEncoder(model, corpus.tokenizer), pairs, CONFIG, seed=0)
    first, second = ([loss.batch(step) for step in range(start, start + 3)] for start in (0, 3))
    for epoch in (first, second):
        assert {pair.query for batch in epoch for pair in batch} == {pair.query for pair in pairs}
        assert [len(batch) for batch in epoch] == [8, 8, 8]
    assert first != second


def test_loss_is_the_mean_cross_entropy_of_both_directions(
    model: TwoStreamTransformer, corpus: PreparedCorpus
) -> None:
    pairs = [SearchPair(f"query number {n}", f"def f{n}(): pass") for n in range(8)]
    encoder = BiEncoder(model.eval(), corpus.tokenizer)
    loss = ContrastiveLoss(encoder, pairs, CONFIG, seed=0)
    batch = loss.batch(0)
    query, _ = encoder([pair.query for pair in batch], CONFIG.query_tokens)
    code, _ = encoder([pair.code for pair in batch], CONFIG.code_tokens)
    score = (query @ code.T / CONFIG.temperature).tolist()
    expected = 0.0
    for rows in (score, list(zip(*score, strict=True))):
        for own, row in enumerate(rows):
            expected += (math.log(sum(math.exp(value) for value in row)) - row[own]) / 16
    assert loss(0).loss.item() == pytest.approx(expected, rel=1e-4)


def test_training_finds_the_pairs_it_was_trained_on(
    model: TwoStreamTransformer, corpus: PreparedCorpus, tmp_path: Path
) -> None:
    pairs = search_data(corpus, CONFIG, 0).train_pairs[:20]
    data = SearchData(pairs, [pairs])
    before = evaluate_search(model, corpus, data, CONFIG, 0)
    train_search(model, corpus, data, CONFIG, 0, Journal(tmp_path / "journal.jsonl"))
    after = evaluate_search(model, corpus, data, CONFIG, 0)
    assert before["mrr"] < 0.5
    assert after["mrr"] > 0.9
    assert (after["num_queries"], after["num_candidates"]) == (20, 20)


def test_tfidf_beats_chance_on_real_functions(corpus: PreparedCorpus) -> None:
    figures = tfidf_baseline(corpus, CONFIG, 0)
    chance = sum(1 / rank for rank in range(1, 21)) / 20
    assert figures["num_queries"] == 60
    assert figures["mrr_low"] > 2 * chance


def test_summary_takes_the_diagonal_as_the_right_answer() -> None:
    perfect, constant = np.eye(4), np.zeros((4, 4))
    assert search_summary([perfect], 0)["mrr"] == 1.0
    assert search_summary([perfect, constant], 0)["mrr"] == pytest.approx((1 + 0.25) / 2)
