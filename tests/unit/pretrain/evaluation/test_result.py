"""Standard errors are those of a ratio of sums, and figures are named and written as documented."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import UserError
from pretrain.evaluation.conditions import conditions
from pretrain.evaluation.result import NUM_SUMS, Estimate, Evaluation, document_sums

_COSTS = st.lists(
    st.tuples(st.floats(0.0, 1e5), st.integers(0, 100_000)).map(lambda pair: (pair[0], float(pair[1]))),
    min_size=2,
    max_size=30,
).filter(lambda costs: sum(num_bytes for _, num_bytes in costs) > 0)


def estimate(nats: np.ndarray, num_bytes: np.ndarray) -> Estimate:
    found = Estimate.of(document_sums(nats, num_bytes).sum(axis=0))
    assert found is not None
    return found


@given(_COSTS)
def test_the_standard_error_is_that_of_a_ratio_of_sums(costs: list[tuple[float, float]]) -> None:
    nats, num_bytes = np.array(costs).T
    ratio = nats.sum() / num_bytes.sum()
    residual = ((nats - ratio * num_bytes) ** 2).sum()
    n = len(costs)
    error_nats = math.sqrt(residual * n / (n - 1)) / num_bytes.sum()
    found = estimate(nats, num_bytes)
    assert found.bits_per_byte == pytest.approx(ratio / math.log(2))
    assert found.standard_error is not None
    # Sums of squares lose digits where the residuals are far below the squares.
    noise = math.sqrt(1e-14 * ((nats**2).sum() + (ratio * num_bytes) ** 2 @ np.ones(n))) / num_bytes.sum()
    assert found.standard_error * math.log(2) == pytest.approx(error_nats, rel=1e-6, abs=2 * noise)


def test_the_true_figure_lies_within_two_standard_errors_nineteen_times_in_twenty() -> None:
    """2,000 samples of 60 documents whose cost per byte varies and goes with their size: 95 % within 2 % of it."""
    generator = np.random.default_rng(0)
    num_bytes = generator.lognormal(7.0, 0.8, size=(2000, 60))
    nats = num_bytes * (0.9 + 0.2 * generator.standard_normal((2000, 60))) + 80.0
    truth = (0.9 * math.exp(7.0 + 0.32) + 80.0) / math.exp(7.0 + 0.32) / math.log(2)
    found = [estimate(nats[sample], num_bytes[sample]) for sample in range(2000)]
    within = [abs(one.bits_per_byte - truth) < 1.96 * (one.standard_error or 0.0) for one in found]
    assert np.mean(within) == pytest.approx(0.95, abs=0.02)


def test_one_document_has_no_standard_error_and_none_no_figure() -> None:
    one = estimate(np.array([5.0]), np.array([7.0]))
    assert one.standard_error is None
    assert one.num_documents == 1
    assert Estimate.of(np.zeros(NUM_SUMS)) is None


def test_documents_that_cost_the_same_per_byte_have_no_error() -> None:
    num_bytes = np.array([7.0, 900.0, 33.0])
    assert estimate(0.3 * num_bytes, num_bytes).standard_error == pytest.approx(0.0, abs=1e-7)


CONDITIONS = conditions(by_order=True, has_memory=True)


def evaluation(languages: list[str]) -> Evaluation:
    generator = np.random.default_rng(0)
    shape = (len(CONDITIONS), max(1, len(languages)))
    sums = np.zeros((*shape, NUM_SUMS))
    for index in np.ndindex(*shape):
        sums[index] = document_sums(generator.uniform(5, 9, 4), generator.uniform(5, 9, 4)).sum(axis=0)
    return Evaluation.of_sums(CONDITIONS, languages, sums)


def test_mlflow_takes_every_name_and_languages_stay_apart() -> None:
    from mlflow.utils.validation import _validate_metric_name

    languages = ["C", "C#", "C++", "Cap'n Proto", "F*", "Graphviz (DOT)", "Jupyter Notebook", "Objective-C++"]
    metrics = evaluation(languages).metrics()
    for name in metrics:
        _validate_metric_name(name)
    assert len(metrics) == 2 * (len(CONDITIONS) + len(languages))
    assert {"validation.language.Cpp", "validation.language.Csharp", "validation.language.C"} <= set(metrics)


def test_metrics_are_the_figures_by_their_names() -> None:
    found = evaluation(["Python"])
    metrics = found.metrics()
    assert metrics["validation_bits_per_byte"] == found.headline.bits_per_byte
    assert metrics["validation_bits_per_byte_se"] == found.headline.standard_error
    assert metrics["validation.language.Python"] == found.headline.bits_per_byte
    assert set(found.to_json()["by_condition"]) == {condition.name for condition in CONDITIONS}
    for condition in CONDITIONS[1:]:
        assert metrics[f"validation.{condition.name}"] == found.to_json()["by_condition"][condition.name]


def test_all_languages_together_are_their_sum() -> None:
    table = evaluation(["Go", "Rust"]).to_json()["table"]
    both, go, rust = table[:3]
    assert (both["language"], go["language"], rust["language"]) == (None, "Go", "Rust")
    assert both["num_documents"] == go["num_documents"] + rust["num_documents"]
    low, high = sorted((go["bits_per_byte"], rust["bits_per_byte"]))
    assert low < both["bits_per_byte"] < high


def test_the_result_is_json_also_where_there_is_no_standard_error() -> None:
    sums = np.zeros((len(CONDITIONS), 1, NUM_SUMS))
    sums[:, 0] = document_sums(np.array([2.0]), np.array([3.0])).sum(axis=0)
    found = Evaluation.of_sums(CONDITIONS, [], sums)
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["model_standard_error"] is None
    assert not any(name.endswith("_se") for name in found.metrics())


def test_a_text_without_bytes_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="spells no bytes"):
        Evaluation.of_sums(CONDITIONS, [], np.zeros((len(CONDITIONS), 1, NUM_SUMS)))
