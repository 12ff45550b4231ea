"""The simulation of many workers runs, and no step of it makes more requests to files than n log n."""

import pytest

from benchmarks.control_plane import Meter, fitted_exponent, simulate, table

_N_LOG_N = 1.3
"""The exponent of n log n between 16 and 64, with what does not grow left out of it."""


@pytest.fixture(scope="module")
def meter(tmp_path_factory: pytest.TempPathFactory) -> Meter:
    meter = Meter()
    for num_ranks in (16, 64):
        simulate(num_ranks, tmp_path_factory.mktemp(str(num_ranks)), meter)
    return meter


@pytest.mark.slow
def test_no_step_makes_more_requests_than_n_log_n(meter: Meter) -> None:
    grows = {}
    for step, costs in meter.costs.items():
        few, many = (costs[num_ranks][-1].calls for num_ranks in (16, 64))
        grows[step] = fitted_exponent([16, 64], [max(few, 1), max(many, 1)])
    assert max(grows.values()) <= _N_LOG_N, grows
    # What the steps are about is really counted: a request for each rank at least, or one for all.
    assert meter.costs["lease: all ranks read it once"][64][0].calls == 64
    assert 64 <= meter.costs["commit: gather parts"][64][0].calls < 2 * 64
    assert meter.costs["open corpus: one reads the indexes"][64][0].calls >= 4 * 64
    assert meter.costs["resume decision, one of two damaged"][64][0].calls >= 2 * 3 * 64


@pytest.mark.slow
def test_the_table_has_every_step(meter: Meter) -> None:
    lines = table(meter, [16, 64])
    assert len(lines) == 2 + len(meter.costs)
    assert all(line.count("|") == lines[0].count("|") for line in lines)


def test_an_exponent_is_the_one_of_the_power() -> None:
    ranks = [128, 256, 512, 1024]
    assert fitted_exponent(ranks, [n**1.5 / 7 for n in ranks]) == pytest.approx(1.5)
    assert fitted_exponent(ranks, [3.0] * 4) == pytest.approx(0.0)
    assert 0.0 < fitted_exponent(ranks, [n + 1000 for n in ranks]) < 1.0
