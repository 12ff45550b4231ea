"""Time and cost from operations."""

import pytest

from cluster.errors import UserError
from pretrain.plan.hardware import GPUS, bill, find_gpu


def test_time_and_cost_are_operations_over_speed_times_price() -> None:
    gpu = find_gpu("A100-80GB")
    due = bill(
        gpu,
        num_gpus=4,
        precision="bf16",
        flops=312e12 * 3600,
        tokens=7200.0,
        utilisation=0.5,
        usd_per_hour=3.0,
    )
    assert due.hours == pytest.approx(0.5)
    assert due.usd == pytest.approx(6.0)
    assert due.tokens_per_s == pytest.approx(4.0)


def test_float32_runs_at_its_own_peak() -> None:
    for gpu in GPUS:
        assert gpu.peak_flops("fp32") < gpu.peak_flops("bf16")


def test_an_unknown_gpu_is_one_line_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="unknown GPU 'tpu': known are l40s, a100-40gb, .*b200"):
        find_gpu("tpu")
