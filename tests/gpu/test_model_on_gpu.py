"""The model gives the same numbers on a GPU as on the CPU, with the kernels, which it really uses, and without."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from pretrain.model import attention, loss
from pretrain.model.config import ModelConfig
from pretrain.model.fused.gpu import choice
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.objective import left_to_right

FP32_TOLERANCE = 1e-4
BF16_LOSS_TOLERANCE = 0.02
"""Of the loss, beside float32."""
BF16_TOLERANCE = 0.1
"""Of the norm of all gradients, beside float32."""
VOCABULARY = 50

pytestmark = pytest.mark.gpu


def make_model(**others: object) -> TwoStreamTransformer:
    torch.manual_seed(0)
    config = {"num_layers": 2, "dropout": 0.0, "memory_tokens": 16, "segment_encodings": True, **others}
    return TwoStreamTransformer(ModelConfig.model_validate(config), VOCABULARY)


def results(model: TwoStreamTransformer) -> tuple[float, Tensor]:
    """The losses of two segments, the second one with the first one's memory, and all gradients, as in training."""
    device = model.device
    tokens_BL = (torch.arange(64) % VOCABULARY).view(2, 32).to(device)
    places = left_to_right(torch.zeros_like(tokens_BL))
    first = model(tokens_BL, places, places, None, tokens_BL)
    second = model(tokens_BL, places, places, first.memory, tokens_BL)
    total = first.loss + second.loss
    total.backward()
    gradients = [
        weight.grad.flatten().float().cpu() for weight in model.parameters() if weight.grad is not None
    ]
    return total.item(), torch.cat(gradients)


@contextmanager
def attention_by(device: torch.device, kernels: bool) -> Iterator[list[int]]:
    """Choose what the model uses within the block; yields a list with an entry for each call of a kernel's operator."""
    calls: list[int] = []

    def counted(function: Callable[..., bool], forced: bool) -> Callable[..., bool]:
        def served(*inputs: object) -> bool:
            is_served = kernels if forced else function(*inputs)
            calls.extend([1] * is_served)
            return is_served

        return served

    is_interpreted = device.type == "cpu"
    with (
        patch.object(choice, "_runs_kernels", lambda _device: kernels),
        patch.object(attention, "served_by_kernels", counted(choice.served_by_kernels, is_interpreted)),
        patch.object(loss, "has_kernels", counted(choice.has_kernels, is_interpreted)),
    ):
        yield calls


@pytest.mark.parametrize("kernels", [False, True], ids=["plain", "kernels"])
@pytest.mark.parametrize("head_dim", [16, 64])
def test_loss_and_gradients_equal_the_cpu(kernels: bool, head_dim: int, device: torch.device) -> None:
    model = make_model(num_heads=2, head_dim=head_dim)
    on_device = copy.deepcopy(model).to(device)
    cpu = torch.device("cpu")
    with attention_by(cpu, kernels=False):
        expected_loss, expected = results(model)
    with attention_by(device, kernels) as calls:
        found_loss, found = results(on_device)
    assert len(calls) == (6 if kernels else 0), "both segments' two layers and losses"
    assert found_loss == pytest.approx(expected_loss, abs=FP32_TOLERANCE)
    assert (found - expected).abs().max() < FP32_TOLERANCE


def test_bfloat16_with_kernels_is_as_near_to_float32_as_without(device: torch.device) -> None:
    model = make_model(num_heads=2, head_dim=64).to(device)
    with attention_by(device, kernels=False):
        exact_loss, exact = results(copy.deepcopy(model))
        plain_loss, plain = results(copy.deepcopy(model).bfloat16())
    with attention_by(device, kernels=True) as calls:
        found_loss, found = results(copy.deepcopy(model).bfloat16())
    assert len(calls) == 6
    assert abs(found_loss - exact_loss) <= BF16_LOSS_TOLERANCE * exact_loss
    error, of_plain = (float((one - exact).norm() / exact.norm()) for one in (found, plain))
    assert error <= max(1.5 * of_plain, 0.01)
    assert error <= BF16_TOLERANCE
