"""GPUs by their names, and the operations of a token."""

import pytest

from cluster.errors import UserError
from pretrain.config import PretrainConfig
from pretrain.plan.flops import training_flops_per_step
from pretrain.plan.hardware import GPUS, find_gpu, flops_per_token, gpu_of_device


def test_float32_runs_at_its_own_peak() -> None:
    for gpu in GPUS:
        assert gpu.peak_flops("fp32") < gpu.peak_flops("bf16")


def test_an_unknown_gpu_is_one_line_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="unknown GPU 'tpu': known are l40s, a100-40gb, .*b200"):
        find_gpu("tpu")


@pytest.mark.parametrize(
    ("device_name", "gpu"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-40gb"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GeForce RTX 3090", None),
        ("NVIDIA L40", None),
    ],
)
def test_a_gpu_is_known_by_its_drivers_name(device_name: str, gpu: str | None) -> None:
    found = gpu_of_device(device_name)
    assert (found.name if found else None) == gpu


def test_what_is_computed_twice_counts_once() -> None:
    plain = PretrainConfig.model_validate(
        {"num_steps": 10, "schedule": {"peak_learning_rate": 1e-3, "warmup_steps": 1}}
    )
    again = plain.model_copy(update={"recompute": "layers"})
    assert flops_per_token(again, 8192) == flops_per_token(plain, 8192)
    whole = training_flops_per_step(
        plain.model,
        plain.lanes,
        plain.segment_tokens,
        plain.objective.num_targets(plain.segment_tokens),
        8192,
        plain.micro_batch_lanes,
        extent_tokens=plain.objective.extent(plain.segment_tokens),
    )
    assert flops_per_token(plain, 8192) * plain.lanes * plain.segment_tokens == pytest.approx(whole)
