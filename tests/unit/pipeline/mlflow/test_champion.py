"""What MLflow gets of an experiment in which nothing was trained: nothing to register, but its data and answers."""

import json
from pathlib import Path

import pytest

from cluster.reporter import Reporter
from cluster.storage import write_json
from data_prep.finished.manifest import MANIFEST_NAME
from finetune.experiment.config import ExperimentConfig
from pipeline.folder.graph import PlannedStage, Stage
from pipeline.folder.sections import PlaceConfig
from pipeline.mlflow.champion import register_best
from pipeline.mlflow.tracking import Tracking


@pytest.mark.filterwarnings(
    "ignore:For backward compatibility, 'str' dtypes"
)  # MLflow's tables with pandas 3
def test_data_and_answers_are_logged_where_nothing_was_trained(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/mlflow.db"
    prep, folder = tmp_path / "prep-1", tmp_path / "text_search-1"
    for path in (prep / MANIFEST_NAME, folder / "tfidf" / "seed-0" / "predictions.jsonl"):
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"key": "first", "ranks": [1]}) + "\n")
    systems = {"tfidf": {"kind": "lexical_ranker"}}
    write_json(
        folder / "result.json", {"headline": "mrr", "systems": {"tfidf": {"valid": None, "seeds": [0]}}}
    )
    config = ExperimentConfig.model_validate({"task": {"kind": "text_search"}, "systems": systems})
    place = PlaceConfig.model_validate({"tracking": {"store": store}})
    tracking = Tracking(store, tmp_path / "mlartifacts", place.tracking.experiment)
    run_id = tracking.parent_run("text_search", "the-key", {})
    stage = Stage("text_search", {}, lambda context: {})
    step = PlannedStage(stage, "the-key", {}, "", folder, "skip", "finished")
    for _ in range(2):
        register_best(config, place, prep, tmp_path, step, Reporter())
    run = tracking._client.get_run(run_id)
    (given,) = run.inputs.dataset_inputs
    assert given.dataset.name == "prep-1"
    (table,) = tmp_path.rglob("samples.json")
    assert "first" in table.read_text()
    assert not tracking._client.search_registered_models()
