"""The learning rate at its corners."""

import pytest

from pretrain.schedule import ScheduleConfig, learning_rate

CONFIG = ScheduleConfig(peak_learning_rate=2.0, warmup_steps=4, final_share=0.25)


def test_it_rises_to_the_peak_and_falls_to_the_final_share() -> None:
    rates = [learning_rate(CONFIG, step, 104) for step in range(105)]
    assert rates[:4] == [0.5, 1.0, 1.5, 2.0]
    assert rates[4] == 2.0
    assert rates[54] == pytest.approx(1.25)
    assert rates[104] == pytest.approx(0.5)
    assert all(later <= earlier for earlier, later in zip(rates[4:], rates[5:], strict=False))


def test_a_run_shorter_than_its_warm_up_only_rises() -> None:
    rates = [learning_rate(CONFIG, step, 2) for step in range(2)]
    assert rates == [0.5, 1.0]
