"""Intervals and comparisons against known cases and plain loops."""

import numpy as np
import pytest

from finetune.metrics import intervals
from finetune.metrics.bleu import codexglue_bleu
from finetune.metrics.intervals import compare, estimate
from finetune.metrics.measured import Measured, mean_of


def ratio(hits: list[int], trials: list[int]) -> Measured:
    return Measured(
        "ratio", np.array([hits, trials], dtype=float).T, lambda sums: sums[..., 0] / sums[..., 1]
    )


def test_estimate_is_the_ratio_of_sums_within_its_interval() -> None:
    found = estimate(ratio([1, 8, 1, 3], [2, 10, 5, 3]), seed=1)
    assert found.value == pytest.approx(13 / 20)
    assert found.low < found.value < found.high
    assert found == estimate(ratio([1, 8, 1, 3], [2, 10, 5, 3]), seed=1)


def test_interval_narrows_with_more_units_and_vanishes_without_variation() -> None:
    few, many = (estimate(ratio([0, 1] * n, [1, 1] * n), seed=2) for n in (10, 1000))
    assert many.high - many.low < 0.3 * (few.high - few.low)
    same = estimate(ratio([1, 2], [2, 4]), seed=3)
    assert (same.low, same.value, same.high) == (0.5, 0.5, 0.5)


def test_the_interval_of_a_mean_is_the_normal_one() -> None:
    values = np.random.default_rng(4).normal(size=400)
    found = estimate(mean_of("m", values), seed=5)
    half_width = 1.96 * values.std() / np.sqrt(400)
    assert found.value == pytest.approx(values.mean())
    assert found.num_items == 400
    assert found.low == pytest.approx(values.mean() - half_width, abs=0.15 * half_width)
    assert found.high == pytest.approx(values.mean() + half_width, abs=0.15 * half_width)


def test_resampling_in_parts_is_resampling_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(6).normal(size=50)
    at_once = estimate(mean_of("m", values), seed=7)
    monkeypatch.setattr(intervals, "DRAWS_AT_ONCE", 130)
    in_parts = estimate(mean_of("m", values), seed=7)
    assert (in_parts.low, in_parts.high) == pytest.approx((at_once.low, at_once.high))


def test_a_corpus_metric_is_resampled_by_items() -> None:
    references = [[f"a b c d e {number}"] for number in range(30)]
    written = [f"a b c d e {number + number % 3}" for number in range(30)]
    generator = np.random.default_rng(8)
    slow = []
    for _ in range(1000):
        picked = generator.integers(0, 30, size=30)
        slow.append(
            codexglue_bleu(
                [references[number] for number in picked], [written[number] for number in picked]
            ).value
        )
    found = estimate(codexglue_bleu(references, written), seed=8)
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(slow, [2.5, 97.5])))


def test_a_constant_advantage_is_certain_and_none_is_none() -> None:
    values = np.random.default_rng(9).random(200)
    better = compare(mean_of("m", values + 0.01), mean_of("m", values), seed=10)
    assert better.difference == pytest.approx(0.01)
    assert (better.low, better.high) == pytest.approx((0.01, 0.01))
    assert better.p_value == pytest.approx(1 / 1001)
    same = compare(mean_of("m", values), mean_of("m", values), seed=10)
    assert (same.difference, same.low, same.high, same.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_pairing_sees_what_two_intervals_do_not() -> None:
    generator = np.random.default_rng(11)
    hardness = generator.normal(size=300)
    first = mean_of("m", hardness + 0.05 + generator.normal(scale=0.1, size=300))
    second = mean_of("m", hardness)
    assert estimate(first, 1).low < second.value < estimate(first, 1).high
    assert compare(first, second, seed=1).p_value < 0.01


def test_chance_alone_is_rarely_called_significant() -> None:
    generator = np.random.default_rng(12)
    found = [
        compare(
            mean_of("m", generator.normal(size=60)), mean_of("m", generator.normal(size=60)), seed=seed
        ).p_value
        for seed in range(200)
    ]
    # 10 of 200 expected at the 5% level, standard deviation 3.1.
    assert 2 <= sum(p <= 0.05 for p in found) <= 20


def test_other_items_cannot_be_paired() -> None:
    with pytest.raises(ValueError, match="3 items cannot be paired with 2"):
        compare(mean_of("m", np.zeros(3)), mean_of("m", np.zeros(2)), seed=0)
