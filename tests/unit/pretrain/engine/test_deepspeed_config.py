"""The DeepSpeed configuration of a run."""

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


def test_deepspeed_clips_where_it_wraps_the_optimizer() -> None:
    clips = {
        (stage, precision): config(zero_stage=stage, precision=precision).deepspeed_clips
        for stage in (0, 1, 2, 3)
        for precision in ("bf16", "fp32")
    }
    assert [case for case, does in clips.items() if not does] == [(0, "fp32")]
    assert not config(deterministic=True).deepspeed_clips


def test_buffers_fit_the_model_and_zero_3_shares_out_every_matrix() -> None:
    zero = deepspeed_config(config(zero_stage=3), 2, PARAMETERS, on_gpu=False)["zero_optimization"]
    assert zero["reduce_bucket_size"] == 95
    assert zero["stage3_param_persistence_threshold"] == 9


def test_offload_is_configured() -> None:
    asked = config(zero_stage=3, offload_optimizer=True, offload_parameters=True)
    zero = deepspeed_config(asked, 2, PARAMETERS, on_gpu=True)["zero_optimization"]
    assert zero["offload_optimizer"] == zero["offload_param"] == {"device": "cpu", "pin_memory": True}
    assert "offload_optimizer" not in deepspeed_config(config(), 2, PARAMETERS, True)["zero_optimization"]
