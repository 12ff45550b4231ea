"""The experiments' recipes that ship with permcode fit their tasks and are no runs' recipes."""

from pathlib import Path

import pytest

from cluster.errors import UserError
from finetune.experiment.choices import TaskConfig, asks_for, learns
from finetune.experiment.stage import baseline_of
from pipeline.experiment_config import load_experiment
from pipeline.recipe import experiment_recipe_names, run_recipe_names

_MODEL = Path("runs/any")
_ABLATIONS = {"conba_java_cs", "positions_corpus"}
"""Their systems are compared with each other."""


@pytest.mark.parametrize("name", experiment_recipe_names())
def test_every_experiments_recipe_is_a_valid_config(name: str) -> None:
    config = load_experiment(name, _MODEL, [])
    assert baseline_of(config) in config.systems
    assert not learns(config.systems[baseline_of(config)]) or name in _ABLATIONS
    starts = {getattr(system, "start", None) for system in config.systems.values() if learns(system)}
    assert starts >= {"pretrained", "scratch"} or name in _ABLATIONS, (
        "what pretraining gives is not to be seen"
    )
    for system in config.systems:
        assert config.training_of_system(system).steps > 0


def test_every_kind_of_task_has_a_recipe() -> None:
    kinds = {one.model_fields["kind"].default for one in TaskConfig.__origin__.__args__}  # type: ignore[attr-defined]
    configs = [load_experiment(name, _MODEL, []) for name in experiment_recipe_names()]
    assert {config.task.kind for config in configs} == kinds
    assert {asks_for(config.task) for config in configs} == {"write", "rank", "label", "predict"}


@pytest.mark.parametrize("name", run_recipe_names())
def test_a_runs_recipe_is_no_experiments(name: str) -> None:
    with pytest.raises(UserError, match=f"^recipe {name} is a whole run's, not an experiment's"):
        load_experiment(name, _MODEL, [])
