"""A run's task as a stage: what its work belongs to, and what is found out before pretraining."""

from pathlib import Path
from typing import Any

import pytest

from cluster.errors import UserError
from cluster.reporter import Reporter
from cluster.resources import ResourcesConfig
from finetune.experiment.config import ExperimentConfig
from pipeline.commands.forget import _remaining_traces
from pipeline.folder.graph import StageContext
from pipeline.folder.recipe import load_run_config
from pipeline.run import task_stage as module
from pipeline.run.stages import _check_tasks, _pretrained
from pipeline.run.task_stage import StartingPoint, task_stage
from pretrain.data.config import CorpusConfig, DataConfig
from tests.example_corpus import stdlib_packages, write_corpus

_CONFIG = ExperimentConfig.model_validate(
    {"task": {"kind": "token_completion"}, "systems": {"n": {"kind": "ngram_predictor"}}}
)


def test_systems_evaluated_before_documents_were_forgotten_are_evaluated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []

    def work(
        config: Any,
        model: Path,
        prep: Path,
        folder: Path,
        inputs: str,
        reporter: Reporter,
        read: tuple[str, ...],
        resources: ResourcesConfig,
    ) -> None:
        given.append(inputs)
        assert read == ("there",)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "run_experiment", work)
    for corpus in ("one", "one", "other", ""):
        stage = task_stage(
            "t",
            _CONFIG,
            lambda context, corpus=corpus: StartingPoint(tmp_path, None, corpus, ("there",)),
            str,
        )  # type: ignore[misc]
        with pytest.raises(KeyboardInterrupt):
            stage.run(StageContext(tmp_path, {}, Reporter()))
    assert given[0] == given[1]
    assert len(set(given)) == 3


def test_a_run_s_tasks_know_all_corpora_that_it_pretrains_on(tmp_path: Path) -> None:
    (tmp_path / "prep-1").mkdir()
    (tmp_path / "prep-1" / "manifest.json").write_text("{}")
    context = StageContext(
        tmp_path, {"prep": tmp_path / "prep-1", "pretrain": tmp_path / "pretrain-1"}, Reporter()
    )
    other = CorpusConfig(location="s3://bucket/prep")
    own = str(tmp_path / "prep-1")
    assert _pretrained(DataConfig(corpora=(other,)), context).pretrained_on == (own, "s3://bucket/prep")
    assert _pretrained(DataConfig(corpora=(other,), own_weight=0), context).pretrained_on == (
        "s3://bucket/prep",
    )


def test_forgetting_names_the_folders_of_predictions(tmp_path: Path) -> None:
    rows = tmp_path / "completion-1" / "ngram" / "seed-0" / "predictions.jsonl"
    rows.parent.mkdir(parents=True)
    rows.touch()
    assert any(
        "predictions of completion-1, and their copies in MLflow" in line
        for line in _remaining_traces(tmp_path)
    )
    assert not any("predictions" in line for line in _remaining_traces(None))


@pytest.fixture(scope="module")
def prep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    modules = {"train": ["string"], "validation": ["argparse", "calendar"], "test": ["tarfile", "csv"]}
    folder = tmp_path_factory.mktemp("prep")
    return write_corpus(folder, {split: stdlib_packages(names) for split, names in modules.items()}).folder


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], None),
        (["completion.task.language=Klingon"], r"^finetune\.completion: .* has no Klingon document"),
        (["search.systems.pretrained.adaptation=head"], r"^finetune\.search: adaptation=head trains nothing"),
        (
            ["search.systems.pretrained.positions={kind: rotary}"],
            r"^finetune\.search: positions=rotary cannot be put into pretrained weights",
        ),
        (
            ["completion.systems.pretrained.segment_tokens=129"],
            r"^finetune\.completion: segment_tokens=129 need 129 positions",
        ),
    ],
)  # fmt: skip
def test_a_task_that_could_not_be_done_ends_a_run_before_pretraining(
    prep: Path, overrides: list[str], expected: str | None
) -> None:
    absolute = ["pretrain.model.positions.kind=absolute_sinusoidal", "pretrain.model.memory_tokens=0"]
    wide = ["pretrain.segment_tokens=128"]
    config = load_run_config("smoke", [*absolute, *wide, *(f"finetune.{one}" for one in overrides)])
    if expected is None:
        _check_tasks(config, prep)
        return
    with pytest.raises(UserError, match=expected):
        _check_tasks(config, prep)
