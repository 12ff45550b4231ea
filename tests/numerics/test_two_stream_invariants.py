"""Invariants of every order: no row sees masked keys, and memory holds what it should."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pretrain.model.layout import UNFILLED_GROUP, TokenLayout
from pretrain.model.loss import prediction_loss
from pretrain.model.segment_memory import SegmentMemory
from pretrain.objective import left_to_right
from tests.numerics.two_stream_cases import (
    CHOICES,
    LANES,
    LENGTH,
    VOCAB,
    Case,
    filled_memory,
    predict,
    random_case,
    small_model,
)

FP64_TOLERANCE = 1e-10


def in_one_group(case: Case) -> Case:
    """The same case, everybody of group 0."""
    return replace(
        case,
        content=replace(case.content, group_BX=torch.zeros_like(case.content.group_BX)),
        targets=replace(case.targets, group_BX=torch.zeros_like(case.targets.group_BX)),
    )


def changed_at(tokens_BL: Tensor, lane: int, index: int) -> Tensor:
    """Another token at one place."""
    changed = tokens_BL.clone()
    changed[lane, index] = (changed[lane, index] + 1) % VOCAB
    return changed


@given(seed=st.integers(0, 10_000), choice=st.sampled_from(sorted(CHOICES)), gap_tokens=st.integers(0, 3))
@settings(deadline=None, max_examples=40)
def test_a_target_token_moves_only_what_comes_later_in_the_order(
    seed: int, choice: str, gap_tokens: int
) -> None:
    model, case = small_model(choice), in_one_group(random_case(seed, gap_tokens=gap_tokens))
    before = predict(model, case)
    place = seed % case.targets.rank_BX.shape[1]
    index = int((case.content.rank_BX[0] == place + 1).nonzero()[0, 0])
    after = predict(model, replace(case, tokens_BL=changed_at(case.tokens_BL, 0, index)))
    one, other = before.logits_BPV, after.logits_BPV
    assert torch.equal(other[0, : place + 1], one[0, : place + 1]), "a target saw itself or a later target"
    assert torch.equal(other[1], one[1]), "lanes mixed"
    if place + 1 < one.shape[1]:
        assert not torch.equal(other[0, place + 1 :], one[0, place + 1 :]), "later targets must see it"


@given(seed=st.integers(0, 10_000), choice=st.sampled_from(["xlnet", "shaw", "rotary", "modern"]))
@settings(deadline=None, max_examples=40)
def test_a_token_changes_no_memory_of_what_comes_before_it_in_the_order(seed: int, choice: str) -> None:
    """With a left-to-right cut: what is remembered of the tokens before the cut knows nothing after it."""
    model, case = small_model(choice, memory_tokens=LENGTH), in_one_group(random_case(seed))
    index = seed % LENGTH
    before = predict(model, case).memory
    after = predict(model, replace(case, tokens_BL=changed_at(case.tokens_BL, 0, index))).memory
    earlier_L = case.content.rank_BX[0] < case.content.rank_BX[0, index]
    for one, other in zip(before.layers_BMD, after.layers_BMD, strict=True):
        assert torch.equal(one[0, earlier_L], other[0, earlier_L])
        assert not torch.equal(one[0, index], other[0, index]), "the changed token itself must be remembered"


@given(seed=st.integers(0, 10_000))
@settings(deadline=None, max_examples=25)
def test_unfilled_memory_padding_and_other_groups_are_never_attended(seed: int) -> None:
    model, case = small_model(), random_case(seed, padding=2)
    memory = filled_memory(model, 2, seed)
    hidden_BM1 = (memory.group_BM != 0)[:, :, None]
    noise = tuple(torch.where(hidden_BM1, layer + 100.0, layer) for layer in memory.layers_BMD)
    first = predict(model, case, memory).logits_BPV
    second = predict(model, case, SegmentMemory(noise, memory.group_BM, memory.document_BM)).logits_BPV
    assert torch.equal(first, second)

    for group in (0, UNFILLED_GROUP):
        changed_BL = torch.where(case.content.group_BX == group, (case.tokens_BL + 1) % VOCAB, case.tokens_BL)
        third = predict(model, replace(case, tokens_BL=changed_BL), memory).logits_BPV
        other_BP = case.targets.group_BX != group
        assert torch.equal(first[other_BP], third[other_BP])


@pytest.mark.parametrize("choice", CHOICES)
def test_the_first_token_of_an_order_sees_nothing_and_is_finite(choice: str) -> None:
    model = small_model(choice)
    tokens = torch.arange(LENGTH).expand(LANES, -1)
    places = left_to_right(torch.zeros_like(tokens))
    logits = model(tokens, places, places).logits_BPV
    changed = model((tokens + 5) % VOCAB, places, places).logits_BPV
    assert logits.isfinite().all()
    assert torch.equal(logits[:, 0], changed[:, 0])
    prediction_loss(logits, tokens).backward()
    unused = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert unused <= {name for name in unused if ".segments." in name}, "only documents are missing here"
    assert all(
        parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None
    )


@pytest.mark.parametrize("choice", ["xlnet", "pre-norm", "shaw", "rotary", "modern"])
def test_two_segments_with_enough_memory_equal_one_long_segment(choice: str) -> None:
    """Left to right, memory carries exactly what one longer segment would see."""
    model = small_model(choice, memory_tokens=LENGTH)
    tokens = torch.randint(0, VOCAB, (LANES, 2 * LENGTH), generator=torch.Generator().manual_seed(5))
    document = torch.arange(2 * LENGTH).expand(LANES, -1) // 5
    places = left_to_right(torch.zeros_like(tokens), document)
    whole = model(tokens, places, places).logits_BPV
    halves, memory = [], None
    for half in (slice(0, LENGTH), slice(LENGTH, None)):
        places = left_to_right(torch.zeros_like(tokens[:, half]), document[:, half])
        output = model(tokens[:, half], places, places, memory)
        memory = output.memory
        halves.append(output.logits_BPV)
    assert (torch.cat(halves, dim=1) - whole).abs().max() < FP64_TOLERANCE


def test_memory_keeps_the_newest_positions_and_carries_no_gradient() -> None:
    model, case = small_model(memory_tokens=10), random_case(1)
    memory = predict(model, case).memory
    assert memory.group_BM[:, :3].eq(UNFILLED_GROUP).all()
    assert torch.equal(memory.group_BM[:, 3:], case.content.group_BX)
    assert torch.equal(memory.document_BM[:, 3:], case.content.document_BX)
    assert torch.equal(memory.layers_BMD[0][:, 3:], model.embedding(case.tokens_BL))
    assert not any(layer.requires_grad for layer in memory.layers_BMD)


@pytest.mark.parametrize("choice", ["xlnet", "shaw", "rotary", "absolute sinusoidal", "absolute learned"])
def test_a_prediction_depends_on_where_it_stands(choice: str) -> None:
    """With one and the same context: otherwise a gap in positions would tell the model nothing."""
    model, case = small_model(choice), in_one_group(random_case(6))
    elsewhere = replace(case.content, position_BX=case.content.position_BX.clone(), extent=LENGTH + 3)
    elsewhere.position_BX[:, 5:] += 3
    given = replace(elsewhere, rank_BX=torch.zeros_like(case.content.rank_BX))
    target = TokenLayout(
        torch.full((LANES, 1), 5), torch.ones(LANES, 1, dtype=torch.int64), given.group_BX[:, :1], None, 10
    )
    first = model(case.tokens_BL, given, target).logits_BPV
    second = model(case.tokens_BL, given, replace(target, position_BX=target.position_BX + 2)).logits_BPV
    assert not torch.allclose(first, second)
