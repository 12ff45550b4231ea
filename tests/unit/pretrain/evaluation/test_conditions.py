"""The orders of validation: what they predict, and that they are always the same."""

import pytest
import torch

from data_prep.finished.prepared import PreparedCorpus
from pretrain.data.batch import Batch, left_to_right_batch
from pretrain.evaluation.conditions import OrderName, ValidationOrders, conditions
from pretrain.evaluation.text import ValidationText
from pretrain.orders.words import WordPieces
from tests.unit.pretrain.evaluation.conftest import LANES, SEGMENT

CPU = torch.device("cpu")


def batch_of(corpus: PreparedCorpus, order: OrderName, segment: int, lanes: range) -> Batch:
    text = ValidationText.of_split(corpus, "validation", LANES, SEGMENT, 1 << 20)
    plain = left_to_right_batch(text.reader, segment, lanes, with_documents=True, device=CPU)
    words = WordPieces.of_tokenizer(corpus.tokenizer, CPU)
    return ValidationOrders(SEGMENT, words, CPU).batch(order, plain, segment, lanes)


def test_half_of_a_segment_is_predicted_in_any_order(corpus: PreparedCorpus) -> None:
    batch = batch_of(corpus, "any_order", 1, range(LANES))
    assert batch.wanted_BP.shape == (LANES, SEGMENT // 2)
    for lane in range(LANES):
        order = batch.targets.position_BX[lane].tolist()
        assert len(set(order)) == len(order)
        assert order != sorted(order)
        assert batch.targets.rank_BX[lane].tolist() == list(range(1, SEGMENT // 2 + 1))
        rank_of = batch.content.rank_BX[lane]
        assert [int(rank_of[index]) for index in order] == list(range(1, SEGMENT // 2 + 1))
        assert sum(rank_of.tolist()) == sum(range(SEGMENT // 2 + 1)), "the rest is context, of rank 0"


def test_a_hole_is_filled_left_to_right_given_all_the_rest(corpus: PreparedCorpus) -> None:
    starts = set()
    for segment in range(8):
        batch = batch_of(corpus, "infill", segment, range(LANES))
        for lane in range(LANES):
            start = int(batch.targets.position_BX[lane, 0])
            starts.add(start)
            hole = list(range(start, start + SEGMENT // 8))
            assert batch.targets.position_BX[lane].tolist() == hole
            assert batch.targets.rank_BX[lane].tolist() == [1, 2, 3, 4]
            ranks = batch.content.rank_BX[lane].tolist()
            assert [ranks[index] for index in hole] == [1, 2, 3, 4]
            assert sum(ranks) == 10, "the rest is context, of rank 0"
    assert len(starts) > 12, "holes lie anywhere"


def test_a_causal_model_reads_what_is_given_in_turn_before_it_predicts(corpus: PreparedCorpus) -> None:
    text = ValidationText.of_split(corpus, "validation", LANES, SEGMENT, 1 << 20)
    plain = left_to_right_batch(text.reader, 1, range(LANES), with_documents=True, device=CPU)
    orders = ValidationOrders(SEGMENT, WordPieces.of_tokenizer(corpus.tokenizer, CPU), CPU)
    for order in ("any_order", "infill"):
        usual = orders.batch(order, plain, 1, range(LANES))
        causal = orders.batch(order, plain, 1, range(LANES), is_causal=True)
        assert torch.equal(causal.wanted_BP, usual.wanted_BP)
        for lane in range(LANES):
            given = (usual.content.rank_BX[lane] == 0).nonzero()[:, 0].tolist()
            in_turn = causal.content.rank_BX[lane].argsort().tolist()
            assert in_turn[: len(given)] == given
            assert in_turn[len(given) :] == usual.targets.position_BX[lane].tolist()
            assert len(set(causal.content.rank_BX[lane].tolist())) == SEGMENT
        num_given = SEGMENT - usual.targets.rank_BX.shape[1]
        assert torch.equal(causal.targets.rank_BX, usual.targets.rank_BX + num_given)


@pytest.mark.parametrize("order", ["left_to_right", "any_order", "infill"])
def test_the_tokens_wanted_are_those_at_the_targets_and_lanes_do_not_mix(
    corpus: PreparedCorpus, order: OrderName
) -> None:
    together = batch_of(corpus, order, 2, range(LANES))
    assert torch.equal(together.tokens_BL.gather(1, together.targets.position_BX), together.wanted_BP)
    for lane in range(LANES):
        alone = batch_of(corpus, order, 2, range(lane, lane + 1))
        for mine, theirs in ((alone.content, together.content), (alone.targets, together.targets)):
            assert torch.equal(mine.rank_BX[0], theirs.rank_BX[lane])
            assert torch.equal(mine.position_BX[0], theirs.position_BX[lane])
            assert torch.equal(mine.group_BX[0], theirs.group_BX[lane])


def test_the_headline_comes_first() -> None:
    names = [condition.name for condition in conditions(by_order=True, has_memory=True)]
    assert names == [
        "left_to_right",
        "any_order",
        "infill",
        "left_to_right.without_memory",
        "any_order.without_memory",
        "infill.without_memory",
    ]
