"""Completion: which pieces make a lexeme, what a prediction may see, whether it learns."""

import math
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import UserError
from cluster.journal import Journal, read_journal
from data_prep.prepared import PreparedCorpus
from finetune.config import CompletionConfig, TrainingConfig
from finetune.held_out import HeldOutDocument
from finetune.lexing import python_lexemes
from finetune.packing import pack_documents
from finetune.tasks.completion import (
    LaneLoss,
    align,
    bigram_baseline,
    completion_summary,
    evaluate_completion,
    next_token_logits,
    ranks_among,
    scored_documents,
    token_ranks,
    train_completion,
)
from pretrain.model.memory import SegmentMemory
from pretrain.model.transformer import TwoStreamTransformer
from tests.example_corpus import tiny_model, write_corpus

CONFIG = CompletionConfig(
    training=TrainingConfig(steps=3, warmup_steps=1, learning_rate=1e-3),
    num_lanes=2,
    segment_tokens=32,
    max_document_tokens=500,
    max_eval_tokens=900,
)
TEXT = "größe = f(a1)  # x\nif größe:\n    pass\n"


@given(st.lists(st.integers(1, 7), min_size=1, max_size=60), st.integers(0, 60))
def test_pieces_are_those_that_overlap_the_lexeme(piece_bytes: list[int], start: int) -> None:
    num_bytes = min(sum(piece_bytes), len(TEXT.encode()))
    document = HeldOutDocument("p/f.py", TEXT, np.arange(len(piece_bytes)))
    start = start % len(piece_bytes)
    scored = align(document, np.array(piece_bytes, dtype=np.int64), start, max_tokens=1000)
    first_byte = sum(piece_bytes[:start])
    whole = [
        one for one in python_lexemes(TEXT) if one.start_byte >= first_byte and one.end_byte <= num_bytes
    ]
    assert scored.lexemes == whole
    owner = [piece for piece, size in enumerate(piece_bytes) for _ in range(size)]
    for lexeme, (first, end) in zip(scored.lexemes, scored.pieces, strict=True):
        assert {start + piece for piece in range(first, end)} == set(
            owner[lexeme.start_byte : lexeme.end_byte]
        )


def test_cut_document_keeps_only_whole_lexemes(corpus: PreparedCorpus) -> None:
    tokens = corpus.tokenizer.encode(TEXT)
    for max_tokens in range(1, len(tokens) + 1):
        scored = align(HeldOutDocument("p/f.py", TEXT, tokens), corpus.tokenizer.token_bytes, 0, max_tokens)
        kept = corpus.tokenizer.decode(tokens[:max_tokens])
        assert len(scored.tokens) == max_tokens
        assert all(end <= max_tokens for _, end in scored.pieces)
        assert [lexeme.text for lexeme in scored.lexemes if lexeme.text not in kept] == []


def _logits(model: TwoStreamTransformer, documents: list[list[int]], segment_tokens: int) -> torch.Tensor:
    lanes = pack_documents([np.array(document) for document in documents], num_lanes=1)
    memory: SegmentMemory | None = None
    parts = []
    model.eval()
    with torch.inference_mode():
        for number in range(lanes.num_segments(segment_tokens)):
            logits, memory = next_token_logits(model, *lanes.segment(number, segment_tokens), memory)
            parts.append(logits[0])
    return torch.cat(parts)[: sum(map(len, documents))]


def test_prediction_sees_what_is_before_it_in_its_document_and_nothing_else(
    model: TwoStreamTransformer,
) -> None:
    first, second = [5, 6, 7, 8, 9, 10], [11, 12, 13, 14, 15, 16, 17]
    before = _logits(model, [first, second], segment_tokens=4)
    other_first = _logits(model, [[50, *first[1:]], second], segment_tokens=4)
    torch.testing.assert_close(before[6:], other_first[6:])
    assert not torch.allclose(before[1:6], other_first[1:6])
    later = _logits(model, [first, [*second[:3], 50, *second[4:]]], segment_tokens=4)
    torch.testing.assert_close(before[:10], later[:10])
    assert not torch.allclose(before[10:], later[10:])


def test_memory_makes_segments_invisible_for_one_layer() -> None:
    # With one layer, memory of layer inputs is exactly the past; deeper layers remember what they saw then.
    deep = tiny_model(700)
    deep.blocks = deep.blocks[:1]
    deep.config = deep.config.model_copy(update={"num_layers": 1})
    document = list(range(5, 25))
    torch.testing.assert_close(_logits(deep, [document], 4), _logits(deep, [document], 20))


def test_documents_that_begin_again_forget_the_end(model: TwoStreamTransformer) -> None:
    lanes = pack_documents([np.arange(5, 15)], num_lanes=1)
    loss = LaneLoss(model, lanes, segment_tokens=4)
    with torch.inference_mode():
        values = [loss(step).loss.item() for step in range(6)]
    assert values[:3] == pytest.approx(values[3:])
    assert np.isfinite(values).all()


def test_ranks_are_places_among_sorted_scores(
    model: TwoStreamTransformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("finetune.tasks.completion.mixed_precision", lambda device: nullcontext())
    document = np.arange(5, 25)
    lanes = pack_documents([document, document[:7]], num_lanes=2)
    rank_BT = token_ranks(model, lanes, segment_tokens=8)
    logits_TV = _logits(model, [document.tolist()], 8)
    place = lanes.places[0]
    found_T = rank_BT[place.lane, place.start : place.start + place.num_tokens]
    order_TV = logits_TV.argsort(dim=-1, descending=True).tolist()
    wanted_T = [order_V.index(token) + 1 for order_V, token in zip(order_TV, document.tolist(), strict=True)]
    assert found_T.tolist() == wanted_T


def test_equal_scores_count_against_all_but_the_first_choice() -> None:
    score_XV = torch.tensor([[2.0, 2.0, 1.0, 1.0]]).repeat(4, 1)
    assert ranks_among(score_XV, torch.arange(4)).tolist() == [1, 2, 4, 4]


def test_summary_counts_by_class(corpus: PreparedCorpus) -> None:
    document = HeldOutDocument("p/f.py", "if a:\n    b = 1\n", np.arange(9))
    scored = align(document, np.full(9, 2, dtype=np.int64), 0, max_tokens=9)
    summary = completion_summary([scored], [[1, 4, 1, 1, math.inf]], seed=0)
    assert summary["accuracy"] == pytest.approx(3 / 5)
    assert summary["mrr"] == pytest.approx((3 + 1 / 4) / 5)
    assert summary["mrr_low"] <= summary["mrr"] <= summary["mrr_high"]
    assert summary["num_lexemes"] == 5
    assert summary["by_class"] == {"identifier": 1.0, "operator": 0.5, "literal": 0.0}


def test_training_learns_a_pattern_that_counting_pairs_cannot(tmp_path: Path) -> None:
    text = "a = f(a, b)\nb = g(a, b)\n" * 12
    train = {"p": {f"{n}.py": text + f"c = {n}\n" for n in range(16)}}
    corpus = write_corpus(tmp_path, {"validation": train, "test": {"q": {"x.py": "b = a\n" + text}}})
    training = TrainingConfig(steps=300, warmup_steps=20, learning_rate=5e-3)
    config = CONFIG.model_copy(update={"training": training, "num_lanes": 8})
    model = tiny_model(corpus.tokenizer.vocab_size)
    documents = scored_documents(corpus, config, 0)
    untrained = evaluate_completion(model, documents, config, 0)
    train_completion(model, corpus, config, 0, Journal(tmp_path / "journal.jsonl"))
    trained = evaluate_completion(model, documents, config, 0)
    baseline = bigram_baseline(corpus, config, 0)
    assert untrained["accuracy"] < 0.3
    assert trained["accuracy"] > 0.95
    assert 0.3 < baseline["accuracy"] < 0.85
    for one in (untrained, trained, baseline):
        assert one["accuracy"] < one["mrr"] <= (1 + one["accuracy"]) / 2, (
            "what is not first is second at best"
        )
    assert trained["num_lexemes"] == baseline["num_lexemes"]
    assert len(read_journal(tmp_path / "journal.jsonl")) == 300


def test_scored_documents_keep_to_the_budget(corpus: PreparedCorpus) -> None:
    documents = scored_documents(corpus, CONFIG, 0)
    assert [len(document.tokens) for document in documents] == [500, 500]


def test_too_little_test_code_is_refused(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, {"test": {"p": {"f.py": "x = 1\n"}}})
    with pytest.raises(UserError, match="only 2 code tokens to score"):
        scored_documents(corpus, CONFIG, 0)
