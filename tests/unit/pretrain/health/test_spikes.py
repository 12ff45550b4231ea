"""What counts as a spike."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pretrain.health.spikes import SpikeDetector


def detector(patience_steps: int = 3) -> SpikeDetector:
    return SpikeDetector(window_steps=40, threshold=8.0, patience_steps=patience_steps)


def noisy_losses(num_steps: int, seed: int = 0) -> list[float]:
    noise = np.random.default_rng(seed).normal(0.0, 0.05, num_steps)
    return [5.0 - 0.01 * step + float(noise[step]) for step in range(num_steps)]


@pytest.mark.parametrize("seed", range(5))
def test_a_noisy_falling_loss_is_no_spike(seed: int) -> None:
    watching = detector()
    assert [watching.see(step, loss) for step, loss in enumerate(noisy_losses(400, seed))] == [None] * 400


def test_so_many_high_losses_in_a_row_are_one_spike_with_its_steps() -> None:
    watching = detector()
    losses = noisy_losses(100)
    losses[60:63] = [7.0, 9.0, 8.0]
    found = [spike for step, loss in enumerate(losses) if (spike := watching.see(step, loss))]
    assert [(spike.first_step, spike.last_step, spike.loss) for spike in found] == [(60, 62, 9.0)]
    assert 4.0 < found[0].median < 5.0


def test_a_spike_begins_with_its_first_high_loss_though_a_step_in_it_was_not_applied() -> None:
    watching = detector()
    losses = noisy_losses(100)
    losses[60:64] = [7.0, float("nan"), 9.0, 8.0]
    found = [spike for step, loss in enumerate(losses) if step != 61 and (spike := watching.see(step, loss))]
    assert [(spike.first_step, spike.last_step) for spike in found] == [(60, 63)]


def test_fewer_high_losses_than_the_patience_are_noise_and_move_no_threshold() -> None:
    watching = detector()
    losses = noisy_losses(100)
    for step in (50, 51, 60, 61, 70):
        losses[step] = 9.0
    assert [watching.see(step, loss) for step, loss in enumerate(losses)] == [None] * 100
    assert max(watching.recent) < 6.0


def test_a_loss_that_stands_still_spikes_only_when_it_moves_by_more_than_a_little() -> None:
    watching = detector(patience_steps=1)
    for step in range(40):
        watching.see(step, 2.0)
    assert watching.see(40, 2.001) is None
    assert watching.see(41, 2.1) is not None


@given(
    losses=st.lists(st.floats(0.1, 20.0), max_size=120), cut=st.integers(0, 120), patience=st.integers(1, 4)
)
def test_taken_up_from_its_state_it_finds_what_it_would_have_found(
    losses: list[float], cut: int, patience: int
) -> None:
    whole, first, second = detector(patience), detector(patience), detector(patience)
    expected = [whole.see(step, loss) for step, loss in enumerate(losses)]
    found = [first.see(step, loss) for step, loss in enumerate(losses[:cut])]
    second.restore(json.loads(json.dumps(first.to_json())))
    found += [second.see(step, loss) for step, loss in enumerate(losses[cut:], start=min(cut, len(losses)))]
    assert found == expected


def test_a_spike_that_is_not_complete_covers_the_steps_since_its_first_high_loss() -> None:
    """However many steps between were not applied: each of them is asked for when the spike is gone back behind."""
    watching = detector()
    for step, loss in enumerate(noisy_losses(60)):
        watching.see(step, loss)
    assert not watching.covers(59)
    watching.see(60, 9.0)
    watching.see(200, 9.0)
    assert [watching.covers(step) for step in (59, 60, 130, 200)] == [False, True, True, True]
    watching.see(201, 4.4)
    assert not watching.covers(200)
