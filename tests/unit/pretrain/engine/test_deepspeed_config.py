"""The DeepSpeed configuration of a run."""

import pytest
import torch

from pretrain.config import PretrainConfig
from pretrain.engine.deepspeed_config import EngineSettings, deepspeed_config

PARAMETERS = [torch.zeros(20, 4), torch.zeros(6), torch.zeros(9)]


def config(**changes: object) -> EngineSettings:
    values: dict[str, object] = {"num_steps": 1000, "lanes": 16, "micro_batch_lanes": 4, "num_workers": 2}
    return EngineSettings.of_pretraining(PretrainConfig.model_validate(values | changes))


def test_micro_batches_make_up_the_lanes() -> None:
    for world_size, accumulated in [(1, 4), (2, 2), (4, 1)]:
        reported = deepspeed_config(config(num_workers=world_size), world_size, PARAMETERS, on_gpu=False)
        assert reported["train_batch_size"] == 16
        assert reported["gradient_accumulation_steps"] == accumulated
        assert reported["train_micro_batch_size_per_gpu"] == 4


def test_sums_of_bfloat16_gradients_are_float32_where_deepspeed_can() -> None:
    reported = deepspeed_config(config(), 2, PARAMETERS, on_gpu=False)
    assert reported["data_types"] == {"grad_accum_dtype": "fp32"}
    for changes, world_size in [({}, 4), ({"precision": "fp32"}, 2), ({"zero_stage": 0}, 2)]:
        reported = deepspeed_config(
            config(num_workers=world_size, **changes), world_size, PARAMETERS, on_gpu=False
        )
        assert "data_types" not in reported


def test_a_deterministic_step_is_one_gradient_clipped_already() -> None:
    reported = deepspeed_config(config(deterministic=True), 2, PARAMETERS, on_gpu=False)
    assert reported["gradient_accumulation_steps"] == 1
    assert reported["gradient_clipping"] == 0.0
    assert "data_types" not in reported


def test_deepspeed_clips_and_checks_only_where_it_updates_in_cpu_memory() -> None:
    for stage in (0, 1, 2, 3):
        for offloaded in (False, True) if stage else (False,):
            asked = config(zero_stage=stage, offload_optimizer=offloaded)
            assert asked.decides_on_device is not offloaded
            reported = deepspeed_config(asked, 2, PARAMETERS, on_gpu=True)
            assert reported["gradient_clipping"] == (1.0 if offloaded else 0.0)
            assert reported["bf16"]["check_grad_overflow"] is offloaded
    assert not config(deterministic=True).decides_on_device


def test_deepspeed_computes_no_norm_that_it_can_leave_out() -> None:
    """It refuses that where its bfloat16 optimizer adds up in float32."""
    computes = {
        (stage, precision, world_size): deepspeed_config(
            config(zero_stage=stage, precision=precision, num_workers=world_size),
            world_size,
            PARAMETERS,
            True,
        )["zero_optimization"].get("compute_grad_norm", True)
        for stage in (1, 2, 3)
        for precision in ("bf16", "fp32")
        for world_size in (2, 4)
    }
    assert {case for case, does in computes.items() if does} == {
        (1, "bf16", 2), (3, "bf16", 2), (3, "bf16", 4), (3, "fp32", 2), (3, "fp32", 4)
    }  # fmt: skip


def test_buffers_fit_the_model_and_zero_3_shares_out_every_matrix() -> None:
    zero = deepspeed_config(config(zero_stage=3), 2, PARAMETERS, on_gpu=False)["zero_optimization"]
    assert zero["reduce_bucket_size"] == 95
    assert zero["stage3_param_persistence_threshold"] == 9


@pytest.mark.parametrize(
    ("sizes", "elements"),
    [
        ([(100, 10)] * 16, 2000),  # an eighth of the model
        ([(400, 10)] + [(10, 10)] * 40, 4000),  # the embedding
        ([(20_000, 4000)] * 40, 80_000_000),
        ([(4000, 4000)] * 40, 50_000_000),
    ],
)
def test_a_gpu_exchanges_gradients_in_several_buckets(sizes: list[tuple[int, int]], elements: int) -> None:
    parameters = [torch.empty(size, device="meta") for size in sizes]
    zero = deepspeed_config(config(), 2, parameters, on_gpu=True)["zero_optimization"]
    assert zero["reduce_bucket_size"] == elements
    assert zero["overlap_comm"]


def test_offload_is_configured() -> None:
    asked = config(zero_stage=3, offload_optimizer=True, offload_parameters=True)
    zero = deepspeed_config(asked, 2, PARAMETERS, on_gpu=True)["zero_optimization"]
    assert zero["offload_optimizer"] == zero["offload_param"] == {"device": "cpu", "pin_memory": True}
    assert "offload_optimizer" not in deepspeed_config(config(), 2, PARAMETERS, True)["zero_optimization"]
