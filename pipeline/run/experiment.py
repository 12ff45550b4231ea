"""Runs an experiment: the stages of `permcode finetune --from`, in a folder of their own."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cluster.reporter import Reporter
from cluster.storage import fingerprint, sha256_file
from data_prep.finished.manifest import MANIFEST_NAME
from finetune.experiment.config import ExperimentConfig
from pipeline.folder.accepted_changes import EXTENDABLE_KEYS, parse_config, rename_stage_folder
from pipeline.folder.differences import without_added_keys
from pipeline.folder.experiment_config import ExperimentRunConfig, prep_folder, pretrained_on
from pipeline.folder.graph import Stage, plan
from pipeline.folder.run_folder import restore_config
from pipeline.folder.sections import KEYS_WITHOUT_EFFECT_ON_OUTPUTS
from pipeline.mlflow.champion import register_best
from pipeline.mlflow.check import seal_store
from pipeline.mlflow.note import read_note, write_note
from pipeline.mlflow.store import store_uri
from pipeline.report.experiment_report import write_experiment_report
from pipeline.report.experiment_table import experiment_lines
from pipeline.run.run import folder_names, run_stages
from pipeline.run.task_stage import StartingPoint, data_hashes, task_stage
from pretrain.checkpoint.listing import COMMIT_NAME
from pretrain.inference.folders import find_model_folder


def run_experiments(
    config: ExperimentRunConfig, out: Path, make_reporter: Callable[[Path], Reporter]
) -> None:
    """Train and evaluate all systems in `out`, or resume that; writes the table to `report.html` and to MLflow.

    Systems and seeds may differ from those of the last command in `out`; what was trained stays.

    Raises UserError for anything the user can fix.
    """
    find_model_folder(config.model)
    stages = experiment_stages(config)
    restore_config(out, config.model_dump(mode="json"), lambda: folder_names(stages, out))
    if plan(stages, out)[0].action == "run":
        # Before anything is started or written: a worker would find bad data only a minute later.
        for line in survey_lines(config):
            Reporter().line(line)

    def keep_jobs(theirs: Mapping[str, Any]) -> None:
        ours = config.model_dump(mode="json")
        if any(theirs.get(key) != ours[key] for key in EXTENDABLE_KEYS):
            write_note(out, replace(read_note(out), is_superseded=True))
            before = experiment_stages(parse_config(theirs, ExperimentRunConfig))
            rename_stage_folder(out, before, stages, config.task.kind)

    steps = run_stages(stages, config, out, make_reporter, EXTENDABLE_KEYS, keep_jobs, experiment_lines)
    register_best(config, config, prep_folder(config), out, steps[0], Reporter())
    seal_store(out, store_uri(out, config.tracking.store))


def experiment_stages(config: ExperimentRunConfig) -> list[Stage]:
    """Return the stage of the task, named by its kind, and the stage of the report."""
    experiment = _without_places(config)
    task = task_stage(
        config.task.kind,
        experiment,
        start=lambda context: StartingPoint(
            config.model.absolute(), prep_folder(config), pretrained_on=pretrained_on(config.model)
        ),
        signature=partial(_signature, config),
    )
    report = Stage(
        name="report",
        config=without_added_keys({"experiment": experiment.model_dump(mode="json")}),
        run=partial(write_experiment_report, config.task.kind),
        inputs=(task.name,),
        needs_ray=False,
    )
    return [task, report]


def survey_lines(config: ExperimentRunConfig) -> list[str]:
    """Return lines that describe the task's items and systems. Raises UserError for unusable data or settings."""
    from finetune.experiment.preflight import survey

    return survey(_without_places(config), config.model.absolute(), prep_folder(config))


def _without_places(config: ExperimentRunConfig) -> ExperimentConfig:
    return ExperimentConfig.model_validate(
        config.model_dump(exclude={*KEYS_WITHOUT_EFFECT_ON_OUTPUTS, "model", "prep"})
    )


def _signature(config: ExperimentRunConfig) -> str:
    """Return the fingerprint of the data files and the base model."""
    base = find_model_folder(config.model)
    file_list = base.folder / COMMIT_NAME
    prep = prep_folder(config)
    return fingerprint(
        {
            "files": data_hashes(config),
            "model": sha256_file(base.description),
            "tokenizer": sha256_file(base.tokenizer),
            "weights": sha256_file(file_list if file_list.is_file() else base.folder / "config.json"),
            "prep": sha256_file(prep / MANIFEST_NAME) if prep and config.task.build().reads_corpus else "",
        }
    )
