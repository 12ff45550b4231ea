"""What an experiment says of several seeds."""

import numpy as np
import pytest

from finetune.experiment.results import graded, summary_of
from finetune.metrics.measured import mean_of


def test_values_and_bounds_are_means_over_seeds() -> None:
    of_items = [np.array([0.0, 1.0, 1.0, 0.0]), np.array([1.0, 1.0, 1.0, 0.0])]
    runs = [
        graded([mean_of("mrr", values)]) | {"seed": seed, "facts": {}} for seed, values in enumerate(of_items)
    ]
    found = summary_of({"own": runs, "other": runs[:1]}, "other")["systems"]["own"]["metrics"]["mrr"]
    single = [run["metrics"]["mrr"] for run in runs]
    assert found["value"] == 0.625
    assert found["deviation"] == pytest.approx(np.std([0.5, 0.75], ddof=1))
    for bound in ("low", "high"):
        assert found[bound] == pytest.approx((single[0][bound] + single[1][bound]) / 2)
    assert found["low"] <= found["value"] <= found["high"]


@pytest.mark.parametrize("first", [0, 1])
def test_only_metrics_that_all_seeds_have_of_as_many_items_are_reported(first: int) -> None:
    values = np.array([0.0, 1.0, 1.0, 0.0])
    measured = [mean_of("mrr", values), mean_of("mrr_unseen", values[1:]), mean_of("recall", values)]
    both = [graded(measured), graded(measured[::2])]
    runs = [both[first ^ seed] | {"seed": seed, "facts": {}} for seed in range(2)]
    found = summary_of({"own": runs, "other": runs}, "other")["systems"]["own"]["metrics"]
    assert list(found) == ["mrr", "recall"]
    fewer = graded([measured[0], mean_of("mrr_unseen", values[2:])]) | {"seed": 1, "facts": {}}
    runs = [both[0] | {"seed": 0, "facts": {}}, fewer]
    found = summary_of({"own": runs, "other": runs[:1]}, "own")["systems"]
    assert list(found["own"]["metrics"]) == ["mrr"]
    assert list(found["other"]["metrics"]) == ["mrr", "mrr_unseen", "recall"]
