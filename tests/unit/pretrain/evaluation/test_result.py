"""What figures are called, and that MLflow takes the names."""

import json

import numpy as np
import pytest

from cluster.errors import UserError
from pretrain.evaluation.conditions import conditions
from pretrain.evaluation.estimate import NUM_SUMS, document_sums
from pretrain.evaluation.result import Evaluation

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
