"""Dropout is keyed by torch's seed alone, and acts in training only."""

import pytest
import torch
from torch import Tensor

from pretrain.model.config import Recompute
from pretrain.randomness import seed_dropout
from tests.numerics.two_stream_cases import filled_memory, predict, random_case, small_model

FP64_TOLERANCE = 1e-12


def gradients(recompute: Recompute, **changes: object) -> dict[str, Tensor]:
    """Of one step with dropout, all of one seed."""
    model, case = small_model("segment encodings", **changes), random_case(2)
    model.recompute = recompute
    seed_dropout(7, step=3, micro_batch=1)
    predict(model, case, filled_memory(model, 3, 2)).logits_BPV.square().mean().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("recompute", ["attention", "layers"])
@pytest.mark.parametrize("changes", [{"dropout": 0.2}, {"dropout": 0.1, "attention_dropout": 0.3}])
def test_what_is_recomputed_drops_the_same_again(changes: dict[str, object], recompute: Recompute) -> None:
    kept, computed_again = gradients("none", **changes), gradients(recompute, **changes)
    for name, gradient in kept.items():
        assert (gradient - computed_again[name]).abs().max() < FP64_TOLERANCE, name


@pytest.mark.parametrize("changes", [{"dropout": 0.2}, {"attention_dropout": 0.2}])
def test_dropout_acts_in_training_only_and_repeats_with_its_key(changes: dict[str, object]) -> None:
    model, case = small_model(**changes), random_case(2)

    def logits(micro_batch: int) -> Tensor:
        seed_dropout(7, step=3, micro_batch=micro_batch)
        return predict(model, case).logits_BPV

    assert torch.equal(logits(0), logits(0))
    assert not torch.equal(logits(0), logits(1))
    model.eval()
    assert torch.equal(logits(0), logits(1))
