"""The formula counts what the model multiplies."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from pretrain.model.config import ModelConfig, Recompute
from pretrain.model.layout import TokenLayout
from pretrain.model.loss import prediction_loss
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.plan.flops import forward_flops, training_flops_per_step

LANES, LENGTH, EXTENT, NUM_TARGETS, VOCAB_SIZE = 3, 12, 15, 5, 37
BASE: dict[str, object] = {
    "num_layers": 3,
    "model_dim": 16,
    "num_heads": 2,
    "head_dim": 6,
    "ffn_dim": 20,
    "memory_tokens": 8,
}
CHOICES: list[dict[str, object]] = [
    {},
    {"memory_tokens": 0},
    {"num_layers": 1},
    {"norm": "pre", "activation": "swiglu", "tie_embeddings": False},
    {"positions": {"kind": "shaw", "max_distance_tokens": 4}},
    {"positions": {"kind": "rotary"}},
    {"positions": {"kind": "absolute_learned"}, "memory_tokens": 0},
    {"segment_encodings": True},
    {"dropout": 0.1, "attention_dropout": 0.1},
]


def counted(config: ModelConfig, backward: bool, recompute: Recompute = "none") -> int:
    """FLOPs of the products that the model really makes, on a device that computes nothing."""
    with torch.device("meta"):
        model = TwoStreamTransformer(config, VOCAB_SIZE)
        tokens_BL = torch.zeros(LANES, LENGTH, dtype=torch.int64)
        target_BP = torch.zeros(LANES, NUM_TARGETS, dtype=torch.int64)
        model.recompute = recompute
        documents_BL = tokens_BL if config.segment_encodings else None
        content = TokenLayout(tokens_BL, tokens_BL, tokens_BL, documents_BL, EXTENT)
        with FlopCounterMode(display=False) as counter:
            output = model(tokens_BL, content, content.at(target_BP))
            if backward:
                prediction_loss(output.logits_BPV, target_BP).backward()
    return int(counter.get_total_flops())


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_the_forward_pass_is_counted_exactly(choice: dict[str, object]) -> None:
    config = ModelConfig.model_validate({**BASE, **choice})
    flops = forward_flops(config, LANES, LENGTH, NUM_TARGETS, VOCAB_SIZE, EXTENT)
    assert flops.forward == counted(config, backward=False)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_forward_and_backward_are_counted_exactly(choice: dict[str, object]) -> None:
    config = ModelConfig.model_validate({**BASE, **choice})
    formula = training_flops_per_step(config, LANES, LENGTH, NUM_TARGETS, VOCAB_SIZE, extent_tokens=EXTENT)
    assert formula == counted(config, backward=True)


@pytest.mark.parametrize("choice", [{}, {"memory_tokens": 0}, {"segment_encodings": True}], ids=str)
@pytest.mark.parametrize("recompute", ["attention", "layers"])
def test_what_is_recomputed_is_counted_exactly(choice: dict[str, object], recompute: Recompute) -> None:
    config = ModelConfig.model_validate({**BASE, **choice})
    flops = forward_flops(config, LANES, LENGTH, NUM_TARGETS, VOCAB_SIZE, EXTENT)
    assert flops.training(recompute) == counted(config, True, recompute)


def test_a_step_in_several_passes_projects_distances_in_each() -> None:
    config = ModelConfig.model_validate(BASE)
    whole = training_flops_per_step(config, 8, LENGTH, NUM_TARGETS, VOCAB_SIZE)
    parts = training_flops_per_step(config, 8, LENGTH, NUM_TARGETS, VOCAB_SIZE, micro_batch_lanes=2)
    projection = forward_flops(config, 2, LENGTH, NUM_TARGETS, VOCAB_SIZE).distance_projection
    assert parts - whole == 3 * 2 * projection


def test_lanes_that_do_not_fill_their_passes_are_refused() -> None:
    config = ModelConfig.model_validate(BASE)
    with pytest.raises(ValueError, match="lanes=8 must be a multiple of micro_batch_lanes=3"):
        training_flops_per_step(config, 8, LENGTH, NUM_TARGETS, VOCAB_SIZE, micro_batch_lanes=3)
