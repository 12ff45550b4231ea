"""Finetuning a model on a task: an experiment's stages, in a folder of its own."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cluster.errors import UserError
from cluster.journal import JOURNAL_NAME
from cluster.reporter import Reporter
from cluster.storage import fingerprint, read_json, sha256_file
from finetune.experiment.choices import learns, task_of
from finetune.experiment.config import ExperimentConfig
from finetune.experiment.files import PREDICTIONS_NAME, RESULT_NAME
from finetune.experiment.stage import job_paths, run_experiment
from pipeline.accepting import GROWING, config_of, take_over
from pipeline.champion import register_best
from pipeline.experiment_config import PREP_MANIFEST, ExperimentRunConfig, prep_folder
from pipeline.experiment_report import write_experiment_report
from pipeline.experiment_table import experiment_lines
from pipeline.graph import Stage, StageContext, plan
from pipeline.judged import judged_fingerprint
from pipeline.mlflow_note import read_note, write_note
from pipeline.run import run_stages
from pretrain.checkpoint.listing import COMMIT_NAME
from pretrain.inference.folders import find_model_folder

_VERSION = 1
"""Of what a task's stage writes."""


def run_experiments(
    config: ExperimentRunConfig, out: Path, make_reporter: Callable[[Path], Reporter]
) -> None:
    """Train and judge all systems in `out`, or go on with that; leaves the table in `report.html` and MLflow.

    Systems and seeds may be others than when `out` was last worked in: what was trained stays.

    Raises UserError for anything the user can mend.
    """
    find_model_folder(config.model)
    stages = experiment_stages(config)
    if plan(stages, out)[0].action == "run":
        # Before anything is started or written: a worker would find bad data a minute later.
        for line in survey_lines(config):
            Reporter().line(line)

    def keep_jobs(theirs: Mapping[str, Any]) -> None:
        ours = config.model_dump(mode="json")
        if any(theirs.get(key) != ours[key] for key in GROWING):
            write_note(out, replace(read_note(out), is_superseded=True))
            before = experiment_stages(config_of(theirs, ExperimentRunConfig))
            take_over(out, before, stages, config.task.kind)

    run_stages(stages, config, out, make_reporter, GROWING, keep_jobs, experiment_lines)
    register_best(config, config, prep_folder(config), out, plan(stages, out), Reporter())


def experiment_stages(config: ExperimentRunConfig) -> list[Stage]:
    """The task's stage, named by its kind, and the report."""
    identity = config.model_dump(mode="json", exclude={"ray", "tracking", "model", "prep"})
    paths = job_paths(config)
    task = Stage(
        name=config.task.kind,
        config=identity,
        run=partial(_run, config),
        signature=partial(_signature, config),
        version=_VERSION,
        journals={
            name: f"{path}/{JOURNAL_NAME}"
            for name, (system, _, path) in paths.items()
            if learns(config.systems[system])
        },
        artifacts=(RESULT_NAME, *(f"{path}/{PREDICTIONS_NAME}" for _, _, path in paths.values())),
        headlines=tuple(f"systems.{name}.headline" for name in config.systems),
    )
    report = Stage(
        name="report",
        config={"experiment": identity},
        run=partial(write_experiment_report, config.task.kind),
        inputs=(task.name,),
        needs_ray=False,
    )
    return [task, report]


def survey_lines(config: ExperimentRunConfig) -> list[str]:
    """What the task's items and systems are. Raises UserError for data or settings that cannot be used."""
    from finetune.experiment.survey import survey

    return survey(_without_places(config), config.model.absolute(), prep_folder(config))


def _without_places(config: ExperimentRunConfig) -> ExperimentConfig:
    return ExperimentConfig.model_validate(config.model_dump(exclude={"ray", "tracking", "model", "prep"}))


def _run(config: ExperimentRunConfig, context: StageContext) -> dict[str, Any]:
    inputs = fingerprint({"version": _VERSION, "signature": context.signature})
    summary = run_experiment(
        _without_places(config),
        config.model.absolute(),
        prep_folder(config),
        context.folder,
        inputs,
        context.reporter,
    )
    first = next(iter(job_paths(config).values()))[2]
    judged = judged_fingerprint(
        config.task.model_dump(mode="json"), context.folder / first / PREDICTIONS_NAME
    )
    return {**summary, "judged": judged, **_numbers_of_jobs(config, context.folder)}


def _numbers_of_jobs(config: ExperimentRunConfig, folder: Path) -> dict[str, dict[str, float]]:
    """Metrics by job, as MLflow shows them on the job's own run."""
    numbers = {}
    for name, (_, _, path) in job_paths(config).items():
        metrics = read_json(folder / path / RESULT_NAME)["metrics"]
        numbers[name] = {metric: found["value"] for metric, found in metrics.items()}
    return numbers


def _signature(config: ExperimentRunConfig) -> str:
    """Of the data files and the base model: other ones are another experiment."""
    task = task_of(config.task)
    files = task.files()
    for path in files:
        if not path.is_file():
            raise UserError(f"task: the file {path} is missing: check the task's paths")
    base = find_model_folder(config.model)
    prep = prep_folder(config)
    return fingerprint(
        {
            "files": [sha256_file(path) for path in files],
            "model": sha256_file(base.description),
            "tokenizer": sha256_file(base.tokenizer),
            "weights": _weights_identity(base.folder),
            "prep": sha256_file(prep / PREP_MANIFEST) if prep and task.reads_corpus else "",
        }
    )


def _weights_identity(folder: Path) -> str:
    commit = folder / COMMIT_NAME
    return sha256_file(commit if commit.is_file() else folder / "config.json")
