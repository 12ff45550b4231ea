"""The model against the loop reference, and what must hold for every order."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pretrain.model.config import ModelConfig
from pretrain.model.memory import SegmentMemory
from pretrain.model.places import Places
from pretrain.model.transformer import PermutationOutput, TwoStreamTransformer
from pretrain.objective import prediction_loss
from tests.numerics.two_stream_reference import reference_logits

FP64_TOLERANCE = 1e-10
LANES, LENGTH, VOCAB = 2, 7, 13


def small_model(norm: str = "post", memory_tokens: int = 4, seed: int = 0) -> TwoStreamTransformer:
    torch.manual_seed(seed)
    config = ModelConfig(
        num_layers=3,
        model_dim=8,
        num_heads=2,
        head_dim=4,
        ffn_dim=12,
        memory_tokens=memory_tokens,
        dropout=0.0,
        norm=norm,
    )
    model = TwoStreamTransformer(config, VOCAB).double()
    for parameter in model.parameters():  # no zeros or ones that could hide a missing term
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def segment(seed: int, num_targets: int = 4) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Random tokens, an order with tied context, two groups, targets."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, VOCAB, (LANES, LENGTH), generator=generator)
    targets = torch.stack([torch.randperm(LENGTH, generator=generator)[:num_targets] for _ in range(LANES)])
    rank = torch.zeros(LANES, LENGTH, dtype=torch.int64)
    rank.scatter_(1, targets, torch.arange(1, num_targets + 1).expand(LANES, -1))
    group = torch.randint(0, 2, (LANES, LENGTH), generator=generator).sort(dim=1).values
    return tokens, rank, group, targets


def predict(
    model: TwoStreamTransformer,
    tokens: Tensor,
    rank: Tensor,
    group: Tensor,
    targets: Tensor,
    memory: SegmentMemory | None = None,
) -> PermutationOutput:
    """Predict the tokens at the indices `targets`."""
    content = Places.in_order(rank, group)
    return model(tokens, content, content.at(targets), memory)


def filled_memory(model: TwoStreamTransformer, filled: int, seed: int) -> SegmentMemory:
    """Random memory whose newest `filled` positions belong to group 0."""
    generator = torch.Generator().manual_seed(seed)
    empty = model.empty_memory(LANES)
    layers = tuple(
        torch.randn(layer.shape, generator=generator, dtype=torch.float64) for layer in empty.layers_BMD
    )
    group = empty.group_BM.clone()
    if filled:
        group[:, -filled:] = 0
    return SegmentMemory(layers, group, torch.zeros_like(group))


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("filled", [0, 2, 4])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_logits_equal_the_loop_reference(norm: str, filled: int, seed: int) -> None:
    model = small_model(norm)
    tokens, rank, group, targets = segment(seed)
    memory = filled_memory(model, filled, seed)
    logits = predict(model, tokens, rank, group, targets, memory).logits_BPV
    for lane in range(LANES):
        expected = reference_logits(model, tokens, rank, group, targets, memory, lane)
        assert (logits[lane] - expected).abs().max() < FP64_TOLERANCE


def test_gradients_equal_the_loop_reference() -> None:
    tokens, rank, group, targets = segment(3)
    gradients = []
    for use_reference in (False, True):
        model = small_model()
        memory = filled_memory(model, 3, 3)
        if use_reference:
            lanes = [
                reference_logits(model, tokens, rank, group, targets, memory, lane) for lane in range(LANES)
            ]
            logits = torch.stack(lanes)
        else:
            logits = predict(model, tokens, rank, group, targets, memory).logits_BPV
        # float64 throughout; prediction_loss itself computes in float32
        torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), tokens.gather(1, targets).flatten()
        ).backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        assert gradient is not None, f"{name} has no gradient"
        assert (gradient - gradients[1][name]).abs().max() < FP64_TOLERANCE, name


@given(seed=st.integers(0, 10_000), norm=st.sampled_from(["post", "pre"]))
@settings(deadline=None, max_examples=25)
def test_a_target_token_moves_only_what_comes_later_in_the_order(seed: int, norm: str) -> None:
    model = small_model(norm)
    tokens, rank, _, targets = segment(seed)
    group = torch.zeros_like(tokens)
    before = predict(model, tokens, rank, group, targets).logits_BPV
    place = seed % targets.shape[1]
    changed = tokens.clone()
    changed[0, targets[0, place]] = (changed[0, targets[0, place]] + 1) % VOCAB
    after = predict(model, changed, rank, group, targets).logits_BPV
    assert torch.equal(after[0, : place + 1], before[0, : place + 1]), "a target saw itself or a later target"
    assert torch.equal(after[1], before[1]), "lanes mixed"
    if place + 1 < targets.shape[1]:
        assert not torch.equal(after[0, place + 1 :], before[0, place + 1 :]), "later targets must see it"


@given(seed=st.integers(0, 10_000))
@settings(deadline=None, max_examples=25)
def test_unfilled_memory_and_other_groups_are_never_attended(seed: int) -> None:
    model = small_model()
    tokens, rank, group, targets = segment(seed)
    memory = filled_memory(model, 2, seed)
    hidden = memory.group_BM != 0
    noise = tuple(torch.where(hidden[:, :, None], layer + 100.0, layer) for layer in memory.layers_BMD)
    first = predict(model, tokens, rank, group, targets, memory).logits_BPV
    second = predict(
        model, tokens, rank, group, targets, SegmentMemory(noise, memory.group_BM, memory.document_BM)
    ).logits_BPV
    assert torch.equal(first, second)

    in_first_group = group == 0
    changed = torch.where(in_first_group, (tokens + 1) % VOCAB, tokens)
    third = predict(model, changed, rank, group, targets, memory).logits_BPV
    other = group.gather(1, targets) == 1
    assert torch.equal(first[other], third[other])


def test_the_first_token_of_an_order_sees_nothing_and_is_finite() -> None:
    model = small_model()
    tokens = torch.arange(LENGTH).expand(LANES, -1)
    rank = torch.arange(1, LENGTH + 1).expand(LANES, -1)
    targets = torch.arange(LENGTH).expand(LANES, -1)
    group = torch.zeros_like(tokens)
    logits = predict(model, tokens, rank, group, targets).logits_BPV
    changed = predict(model, (tokens + 5) % VOCAB, rank, group, targets).logits_BPV
    assert logits.isfinite().all()
    assert torch.equal(logits[:, 0], changed[:, 0])
    prediction_loss(logits, tokens.gather(1, targets)).backward()
    assert all(
        parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters()
    )


def test_two_segments_with_enough_memory_equal_one_long_segment() -> None:
    """Left to right, memory carries exactly what one longer segment would see."""
    model = small_model(memory_tokens=LENGTH)
    tokens = torch.randint(0, VOCAB, (LANES, 2 * LENGTH), generator=torch.Generator().manual_seed(5))
    rank = torch.arange(1, 2 * LENGTH + 1).expand(LANES, -1)
    position = torch.arange(2 * LENGTH).expand(LANES, -1)
    group = torch.zeros_like(tokens)
    whole = predict(model, tokens, rank, group, position).logits_BPV
    halves, memory = [], None
    for half in (slice(0, LENGTH), slice(LENGTH, None)):
        output = predict(
            model, tokens[:, half], rank[:, :LENGTH], group[:, half], position[:, :LENGTH], memory
        )
        memory = output.memory
        halves.append(output.logits_BPV)
    assert (torch.cat(halves, dim=1) - whole).abs().max() < FP64_TOLERANCE


def test_memory_keeps_the_newest_positions_and_carries_no_gradient() -> None:
    model = small_model(memory_tokens=10)
    tokens, rank, group, targets = segment(1)
    memory = predict(model, tokens, rank, group, targets).memory
    assert memory.group_BM[:, :3].eq(-1).all()
    assert torch.equal(memory.group_BM[:, 3:], group)
    assert torch.equal(memory.layers_BMD[0][:, 3:], model.embedding(tokens))
    assert not any(layer.requires_grad for layer in memory.layers_BMD)
