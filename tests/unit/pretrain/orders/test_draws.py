"""Draws: splitmix64 bit for bit, fair, the same for every grouping of lanes, and a key away from everything else."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pretrain.orders.draws import DrawTable, LaneDraws, choice_bounds, splitmix64

CPU = torch.device("cpu")
# Deviations beyond this many sigma are faults: the draws are fixed, so a test passes always or never.
SIGMAS = 5


def draws_of(num: int, lanes: range = range(1), step: int = 0, seed: int = 0) -> LaneDraws:
    return DrawTable({"these": num}, CPU).draws(seed, step, lanes)


def as_words(bits: torch.Tensor) -> np.ndarray:
    return bits.numpy().view(np.uint64)


def plain_splitmix64(seed: int, index: int) -> int:
    mask = (1 << 64) - 1
    word = (seed + (index + 1) * 0x9E3779B97F4A7C15) & mask
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & mask
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & mask
    return word ^ (word >> 31)


def test_splitmix64_gives_its_published_numbers() -> None:
    # rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64, seed 1234567
    published = [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
    ]  # fmt: skip
    assert as_words(splitmix64(1234567, torch.arange(5))).tolist() == published


@given(seed=st.integers(-(1 << 63), (1 << 63) - 1), index=st.integers(0, (1 << 62)))
def test_splitmix64_wraps_as_64_bit_arithmetic_does(seed: int, index: int) -> None:
    word = as_words(splitmix64(torch.tensor([seed]), torch.tensor([index])))[0]
    assert int(word) == plain_splitmix64(seed % (1 << 64), index)


def neighbours() -> dict[str, np.ndarray]:
    """Numbers whose keys differ by one in one part, [many, 64 or more] in each case."""
    lanes, steps = range(0, 512), range(0, 512)
    return {
        "counters": as_words(draws_of(1 << 16).bits["these"]).reshape(-1, 64),
        "lanes": as_words(draws_of(64, lanes).bits["these"]).T,
        "steps": as_words(torch.cat([draws_of(64, step=step).bits["these"] for step in steps])).T,
        "seeds": as_words(torch.cat([draws_of(64, seed=seed).bits["these"] for seed in steps])).T,
    }


@pytest.mark.parametrize("what", ["counters", "lanes", "steps", "seeds"])
def test_neighbouring_keys_give_uniform_and_independent_numbers(what: str) -> None:
    words = np.ascontiguousarray(neighbours()[what])
    bins = 256
    for shift in (0, 24, 33, 56):  # low bits, those below the draws', the draws' lowest, the top
        counts = np.bincount(
            ((words >> np.uint64(shift)) % np.uint64(bins)).ravel().astype(int), minlength=bins
        )
        expected = words.size / bins
        chi_square = ((counts - expected) ** 2 / expected).sum()
        assert abs(chi_square - (bins - 1)) < SIGMAS * np.sqrt(2 * (bins - 1)), (what, shift)
    bits = np.unpackbits(words[..., None].view(np.uint8), axis=-1).reshape(*words.shape, 64)
    changed = bits[:, 1:] ^ bits[:, :-1]
    assert np.abs(changed.mean(axis=(0, 1)) - 0.5).max() < SIGMAS * 0.5 / np.sqrt(changed[..., 0].size), (
        "each bit must change with every second neighbour"
    )


@given(lanes=st.integers(1, 40), first=st.integers(0, 1000), step=st.integers(0, 1 << 40))
def test_a_lane_draws_the_same_alone_and_among_others(lanes: int, first: int, step: int) -> None:
    together = draws_of(7, range(first, first + lanes), step).bits["these"]
    alone = [draws_of(7, range(lane, lane + 1), step).bits["these"] for lane in range(first, first + lanes)]
    assert torch.equal(together, torch.cat(alone))


def test_a_purpose_draws_the_same_whatever_else_is_drawn() -> None:
    alone = draws_of(5).bits["these"]
    among = DrawTable({"those": 3, "these": 9, "more": 1}, CPU).draws(0, 0, range(1)).bits
    assert torch.equal(alone, among["these"][:, :5])
    assert len(np.unique(torch.cat(list(among.values()), dim=1))) == 13


@pytest.mark.parametrize("bound", [1, 2, 7, 1000, 1 << 31])
def test_draws_below_a_bound_fill_it_evenly(bound: int) -> None:
    drawn = draws_of(70_000).below("these", bound).numpy()
    assert drawn.min() >= 0
    assert drawn.max() < bound
    # A uniform integer in [0, n) has mean (n - 1) / 2 and variance (n^2 - 1) / 12.
    deviation = np.sqrt((bound**2 - 1) / 12 / drawn.size)
    assert abs(drawn.mean() - (bound - 1) / 2) <= SIGMAS * deviation
    if bound <= 7:
        assert len(np.unique(drawn)) == bound


def test_bounds_may_differ_by_number() -> None:
    bound = torch.tensor([1, 10, 100]).expand(4, 3)
    drawn = draws_of(3, range(4)).below("these", bound)
    assert (drawn < bound).all()
    assert (drawn >= 0).all()


def test_choices_follow_their_weights() -> None:
    weights = [5.0, 0.0, 1.0, 2.0]
    chosen = draws_of(80_000).choice("these", choice_bounds(weights, CPU)).numpy()
    shares = np.bincount(chosen.ravel(), minlength=4) / chosen.size
    wanted = np.array(weights) / sum(weights)
    assert shares[1] == 0
    assert (np.abs(shares - wanted) <= SIGMAS * np.sqrt(wanted * (1 - wanted) / chosen.size)).all()


def test_one_choice_is_no_choice() -> None:
    assert (draws_of(100).choice("these", choice_bounds([3.0], CPU)) == 0).all()


def test_sort_keys_leave_room_above() -> None:
    keys = draws_of(10_000).sort_keys("these")
    assert keys.min() >= 0
    assert keys.max() < 1 << 62
    assert len(keys.unique()) == 10_000
