"""Memory per GPU by ZeRO stage, and what makes a run fit."""

from typing import Any

import pytest

from pretrain.config import PretrainConfig
from pretrain.plan.gpu_memory import ZERO_STAGES, gpu_memory, needed_bytes, passes_bytes, smallest_change
from pretrain.plan.parameters import count_parameters

VOCAB_SIZE = 1000


def config_of(**changes: Any) -> PretrainConfig:
    values: dict[str, Any] = {
        "model": {"num_layers": 3, "model_dim": 64, "num_heads": 2, "head_dim": 32, "ffn_dim": 128},
        "schedule": {"warmup_steps": 1},
        "num_steps": 10,
        "num_workers": 4,
        "lanes": 64,
        "micro_batch_lanes": 16,
        "segment_tokens": 32,
    }
    return PretrainConfig.model_validate({**values, **changes})


def test_a_stage_takes_the_zero_papers_bytes_per_parameter() -> None:
    config = config_of()
    number = count_parameters(config.model, VOCAB_SIZE).total
    share = -(-number // 4)
    expected = {0: 16 * number, 1: 4 * number + 14 * share, 2: 2 * number + 14 * share}
    for stage, num_bytes in expected.items():
        memory = gpu_memory(config, VOCAB_SIZE, stage)
        assert memory.weights + memory.gradients + memory.masters_and_moments == num_bytes


def test_a_higher_stage_never_holds_more() -> None:
    held = [
        memory.weights + memory.gradients + memory.masters_and_moments
        for memory in (gpu_memory(config_of(), VOCAB_SIZE, stage) for stage in ZERO_STAGES)
    ]
    assert held == sorted(held, reverse=True)


def test_the_third_stage_gathers_the_embedding_and_one_layer() -> None:
    config = config_of(num_workers=1)
    counted = count_parameters(config.model, VOCAB_SIZE)
    assert gpu_memory(config, VOCAB_SIZE, 3).weights == 2 * counted.total, "one GPU has everything anyway"
    shared = gpu_memory(config_of(), VOCAB_SIZE, 3).weights
    per_layer = (
        counted.attention_projections + counted.positions + counted.feed_forward + counted.norms
    ) // config.model.num_layers
    outside = counted.total - per_layer * config.model.num_layers
    assert shared == 2 * (-(-counted.total // 4) + outside + per_layer)


def test_what_is_offloaded_is_not_on_the_gpu() -> None:
    kept = [gpu_memory(config_of(), VOCAB_SIZE, stage) for stage in ZERO_STAGES]
    optimizer = config_of(zero_stage=3, offload_optimizer=True)
    for stage in ZERO_STAGES[1:]:
        memory = gpu_memory(optimizer, VOCAB_SIZE, stage)
        assert (memory.masters_and_moments, memory.optimizer_step) == (0, 0)
        assert (memory.weights, memory.gradients) == (kept[stage].weights, kept[stage].gradients)
    assert gpu_memory(optimizer, VOCAB_SIZE, 0) == kept[0], "stage 0 cannot"
    both = config_of(zero_stage=3, offload_optimizer=True, offload_parameters=True)
    share = -(-count_parameters(both.model, VOCAB_SIZE).total // 4)
    assert gpu_memory(both, VOCAB_SIZE, 3).weights == kept[3].weights - 2 * share
    assert gpu_memory(both, VOCAB_SIZE, 2).weights == kept[2].weights


def test_float32_weights_take_twice_the_bytes() -> None:
    half, whole = (
        gpu_memory(config_of(precision=precision), VOCAB_SIZE, 2) for precision in ("bf16", "fp32")
    )
    assert whole.weights == 2 * half.weights
    assert whole.masters_and_moments == half.masters_and_moments


def test_memory_of_the_past_and_of_the_future_are_both_held() -> None:
    config = config_of()
    per_lane = config.model.memory_tokens * (3 * 64 * 2 + 2 * 8)
    assert gpu_memory(config, VOCAB_SIZE, 2).segment_memory == per_lane * (2 * 16 - 16)


def test_the_larger_of_passes_and_optimizer_step_counts() -> None:
    config = config_of(num_workers=1)
    memory = gpu_memory(config, VOCAB_SIZE, 0)
    rest = memory.total - max(memory.passes, memory.optimizer_step)
    held = memory.weights + memory.gradients + memory.masters_and_moments
    assert rest == held + memory.segment_memory + memory.reserve


def test_recomputing_and_smaller_micro_batches_save_memory() -> None:
    deep = {"num_layers": 32, "model_dim": 64, "num_heads": 2, "head_dim": 32, "ffn_dim": 128}
    kept, attention, layers = (
        passes_bytes(config_of(model=deep, recompute=recompute), VOCAB_SIZE)
        for recompute in ("none", "attention", "layers")
    )
    assert layers < attention < kept
    plain = passes_bytes(config_of(), VOCAB_SIZE)
    assert passes_bytes(config_of(micro_batch_lanes=8), VOCAB_SIZE) == pytest.approx(plain / 2, rel=0.05)


def test_a_run_that_fits_needs_only_the_sharing_of_gradients() -> None:
    config = config_of(zero_stage=1)
    available = needed_bytes(config_of(zero_stage=2), VOCAB_SIZE)
    change = smallest_change(config, VOCAB_SIZE, available)
    assert change is not None
    assert change.values == {"zero_stage": 2}


@pytest.mark.parametrize(
    "values",
    [
        {"micro_batch_lanes": 8},
        {"micro_batch_lanes": 4},
        {"recompute": "layers"},
        {"recompute": "layers", "micro_batch_lanes": 1},
    ],
)
def test_the_first_change_that_fits_is_named_with_what_it_needs(values: dict[str, Any]) -> None:
    deep = {"num_layers": 32, "model_dim": 64, "num_heads": 2, "head_dim": 32, "ffn_dim": 128}
    needed = needed_bytes(config_of(model=deep, **values), VOCAB_SIZE)
    change = smallest_change(config_of(model=deep), VOCAB_SIZE, needed)
    assert change is not None
    assert change.values == values
    assert change.needed_bytes == needed


def test_only_what_the_config_takes_is_named() -> None:
    """Of 24 lanes on 2 workers, 4, 2 or 1 a pass are not a power of two of micro-batches, as determinism needs."""
    deep = {"num_layers": 16, "model_dim": 64, "num_heads": 2, "head_dim": 32, "ffn_dim": 128}
    config = config_of(
        model=deep, deterministic=True, zero_stage=2, num_workers=2, lanes=24, micro_batch_lanes=6
    )
    needed = needed_bytes(config.model_copy(update={"micro_batch_lanes": 4}), VOCAB_SIZE)
    change = smallest_change(config, VOCAB_SIZE, needed)
    assert change is not None
    assert change.values == {"micro_batch_lanes": 3}
    PretrainConfig.model_validate({**config.model_dump(), **change.values})


def test_nothing_helps_where_the_weights_alone_are_too_large() -> None:
    assert smallest_change(config_of(), VOCAB_SIZE, 1000) is None
