"""The model, in every choice of its config, equals the loop reference: logits and all gradients."""

from functools import cache

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from pretrain.model.config import Recompute
from tests.numerics.two_stream_cases import (
    CHOICES,
    LANES,
    LENGTH,
    Case,
    filled_memory,
    predict,
    random_case,
    small_model,
)
from tests.numerics.two_stream_reference import reference_logits

FP64_TOLERANCE = 1e-10


@pytest.mark.parametrize("filled", [0, 2, 4])
@pytest.mark.parametrize("choice", CHOICES)
def test_logits_equal_the_loop_reference(choice: str, filled: int) -> None:
    model = small_model(choice)
    for seed, gap_tokens, padding in ((0, 0, 0), (1, 3, 0), (2, 0, 2)):
        case, memory = (
            random_case(seed, gap_tokens=gap_tokens, padding=padding),
            filled_memory(model, filled, seed),
        )
        logits = predict(model, case, memory).logits_BPV
        for lane in range(LANES):
            expected = reference_logits(model, case.tokens_BL, case.content, case.targets, memory, lane)
            assert (logits[lane] - expected).abs().max() < FP64_TOLERANCE


@pytest.mark.parametrize("num_targets", [1, LENGTH])
def test_one_target_and_all_targets_equal_the_loop_reference(num_targets: int) -> None:
    model, case = small_model(), random_case(4, num_targets)
    memory = filled_memory(model, 3, 4)
    logits = predict(model, case, memory).logits_BPV
    for lane in range(LANES):
        expected = reference_logits(model, case.tokens_BL, case.content, case.targets, memory, lane)
        assert (logits[lane] - expected).abs().max() < FP64_TOLERANCE


def gradient_case() -> tuple[Case, Tensor]:
    """A case and what it predicts."""
    case = random_case(3, gap_tokens=2)
    return case, torch.arange(case.targets.rank_BX.numel()) % 13


@cache
def reference_gradients(choice: str) -> dict[str, Tensor | None]:
    model, (case, wanted) = small_model(choice), gradient_case()
    memory = filled_memory(model, 3, 3)
    lanes = [
        reference_logits(model, case.tokens_BL, case.content, case.targets, memory, lane)
        for lane in range(LANES)
    ]
    functional.cross_entropy(torch.stack(lanes).flatten(0, 1), wanted).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("recompute", ["none", "attention", "layers"])
@pytest.mark.parametrize("choice", CHOICES)
def test_gradients_equal_the_loop_reference(choice: str, recompute: Recompute) -> None:
    model, (case, wanted) = small_model(choice), gradient_case()
    model.recompute = recompute
    logits = predict(model, case, filled_memory(model, 3, 3)).logits_BPV
    functional.cross_entropy(logits.flatten(0, 1), wanted).backward()
    expected = reference_gradients(choice)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} has no gradient"
        assert (parameter.grad - expected[name]).abs().max() < FP64_TOLERANCE, name
