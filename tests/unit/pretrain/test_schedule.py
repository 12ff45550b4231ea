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


def test_a_linear_decay_falls_by_the_same_at_every_step() -> None:
    config = CONFIG.model_copy(update={"kind": "linear"})
    rates = [learning_rate(config, step, 104) for step in range(4, 105)]
    falls = [earlier - later for earlier, later in zip(rates, rates[1:], strict=False)]
    assert falls == pytest.approx([1.5 / 100] * 100)
    assert rates[-1] == pytest.approx(0.5)


def test_wsd_holds_the_peak_until_its_decay_and_is_the_same_run_until_then_when_made_longer() -> None:
    config = CONFIG.model_copy(update={"kind": "wsd", "decay_share": 0.25})
    rates = [learning_rate(config, step, 100) for step in range(101)]
    assert set(rates[3:76]) == {2.0}
    assert rates[76] < 2.0
    assert rates[100] == pytest.approx(0.5)
    assert [learning_rate(config, step, 400) for step in range(75)] == rates[:75]


def test_a_constant_rate_stays() -> None:
    config = CONFIG.model_copy(update={"kind": "constant"})
    assert {learning_rate(config, step, 100) for step in range(3, 100)} == {2.0}
