"""Bytes and times of a step on many GPUs."""

import pytest

from pretrain.plan.scaling import Network, exchange, scaled_step

NETWORK = Network(bytes_per_s=1e9, hop_s=0.0)


@pytest.mark.parametrize(("stage", "rings"), [(0, 2), (1, 2), (2, 5), (3, 12)])
def test_rings_per_step_with_four_micro_batches(stage: int, rings: int) -> None:
    assert exchange(stage, num_micro_batches=4).rings == rings


def test_one_gpu_sends_nothing_and_loses_nothing() -> None:
    for stage in range(4):
        step = scaled_step(10**9, 1, stage, 2, 1.0, NETWORK)
        assert (step.wire_bytes, step.network_s, step.efficiency) == (0.0, 0.0, 1.0)


def test_two_gpus_send_half_of_every_ring() -> None:
    step = scaled_step(10**9, 2, 0, 1, 100.0, NETWORK)
    assert step.wire_bytes == 2 * 10**9
    assert step.network_s == pytest.approx(2.0)
    assert step.shown_s == 0.0


def test_what_computing_cannot_hide_shows() -> None:
    """ZeRO 0's 2 s hide behind the backward pass, two thirds of 1.5 s; ZeRO 1's gathering behind nothing."""
    assert scaled_step(10**9, 2, 0, 1, 1.5, NETWORK).shown_s == pytest.approx(1.0)
    assert scaled_step(10**9, 2, 1, 1, 1.5, NETWORK).shown_s == pytest.approx(1.0)
    assert scaled_step(10**9, 2, 1, 1, 30.0, NETWORK).efficiency == pytest.approx(30 / 31)


def test_hops_end_the_scaling() -> None:
    network = Network(bytes_per_s=1e12, hop_s=1e-4)
    shares = [scaled_step(10**6, 2**power, 0, 1, 0.1, network).efficiency for power in range(14)]
    assert shares[0] == 1.0
    assert all(later <= earlier for earlier, later in zip(shares, shares[1:], strict=False))
    assert shares[-1] < 0.05
