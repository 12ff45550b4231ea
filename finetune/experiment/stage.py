"""An experiment as a stage: its jobs under Ray Train, their progress bars, the summary."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from cluster.follow import follow_journal
from cluster.journal import JOURNAL_NAME, JournalRecord
from cluster.reporter import Bar, Reporter
from cluster.resources import ResourcesConfig
from cluster.storage import read_document, write_document
from finetune.experiment.config import ExperimentConfig
from finetune.experiment.files import RESULT_NAME
from finetune.experiment.job import Job
from finetune.experiment.results import summary_of
from finetune.experiment.reuse import job_identity, sort_jobs
from finetune.training.config import rate_name
from pretrain.journal.events import Start, TestEvaluation, event_of
from pretrain.workers import Workers

_MAX_RESTARTS = 2
_DEFAULT_RESOURCES = ResourcesConfig()
_HANG_TIMEOUT_S = 7 * 24 * 3600
"""The first worker evaluates alone, which may take hours."""


def job_paths(config: ExperimentConfig) -> dict[str, tuple[str, int, str]]:
    """Return system, seed and folder (below the experiment's) of every job, by the job's name."""
    return {
        f"{name}-seed-{seed}": (name, seed, f"{name}/seed-{seed}")
        for name, system in config.systems.items()
        for seed in (config.seeds() if system.learns else [config.seed])
    }


def baseline_of(config: ExperimentConfig) -> str:
    """Return the name of the system that the others are compared with."""
    counting = [name for name, system in config.systems.items() if not system.learns]
    return config.baseline or (counting or list(config.systems))[0]


def run_experiment(
    config: ExperimentConfig,
    model: Path,
    prep: Path | None,
    folder: Path,
    inputs: str,
    reporter: Reporter,
    pretrained_on: Sequence[str] = (),
    resources: ResourcesConfig = _DEFAULT_RESOURCES,
) -> dict[str, Any]:
    """Train and evaluate every system for every seed; return the summary, also written to `result.json`.

    Finished jobs are kept; a killed job resumes from its last checkpoint; a job that the config no longer names is
    moved aside. `model` is a folder for `checked_model`; `prep` is the prepared corpus, for tasks that make their
    data from one; `inputs` identifies both, and the data files; `pretrained_on` are the locations of the prepared
    corpora that the model was pretrained on, if known. Needs an open Ray session. Raises UserError for data or settings
    that cannot be used, KeyboardInterrupt when stopped.
    """
    from finetune.experiment.groups import run_groups
    from finetune.experiment.jobs import read_result, run_jobs
    from finetune.experiment.overlap import overlap_of

    jobs = [Job(system, seed, folder / path) for system, seed, path in job_paths(config).values()]
    sort_jobs(
        folder,
        {
            path: job_identity(config, system, seed, inputs)
            for system, seed, path in job_paths(config).values()
        },
    )
    overlap = overlap_of(config, prep, pretrained_on, folder, reporter)
    missing = [job for job in jobs if not job.result.exists()]
    if missing:
        sizes = (config.training.num_workers,)
        workers = Workers("finetuning", sizes, _MAX_RESTARTS, folder, resources, _HANG_TIMEOUT_S)
        overlapping = overlap.items if overlap is not None else frozenset()
        settings = {
            "config": config,
            "model": model,
            "prep": prep,
            "jobs": missing,
            "overlapping": overlapping,
        }
        with _shown(config, folder, reporter):
            run_groups(
                workers, run_jobs, settings, missing, partial(_first_of_system, config, missing), reporter
            )
        if any(not job.result.exists() for job in jobs):
            raise KeyboardInterrupt
    results: dict[str, list[dict[str, Any]]] = {}
    for job in jobs:
        results.setdefault(job.system, []).append(read_result(job))
    summary = summary_of(results, baseline_of(config)) | {
        "overlap": overlap.facts if overlap is not None else None,
        "overlap_unknown": overlap.unknown if overlap is not None else "",
    }
    write_document(folder / RESULT_NAME, summary)
    return summary


def _first_of_system(config: ExperimentConfig, jobs: Sequence[Job], job: Job) -> Job | None:
    """Return the job among `jobs` that finds the learning rate of this one, if there is one."""
    first = next(one for one in jobs if one.system == job.system)
    return first if first != job and config.rates_to_try(first.system, first.seed) else None


def read_summary(folder: Path) -> dict[str, Any]:
    """Return the summary of a finished experiment."""
    summary: dict[str, Any] = read_document(folder / RESULT_NAME)
    return summary


@contextmanager
def _shown(config: ExperimentConfig, folder: Path, reporter: Reporter) -> Iterator[None]:
    """Show a progress bar for every training, which follows its journal while the block runs."""
    with ExitStack() as stack:
        for name, (system, seed, path) in job_paths(config).items():
            is_done = (folder / path / RESULT_NAME).exists()
            if is_done or not config.systems[system].learns:
                continue
            num_steps = config.training_of_system(system).steps
            rates = [rate_name(rate) for rate in config.rates_to_try(system, seed)]
            for title, place in [(f"{name}-{rate}", f"{path}/{rate}") for rate in rates] or [(name, path)]:
                bar = stack.enter_context(reporter.bar(title, num_steps, "steps"))
                show = partial(_show, title, bar, num_steps, reporter)
                stack.enter_context(follow_journal(folder / place / JOURNAL_NAME, show, skip_existing=True))
        yield


def _show(name: str, bar: Bar, num_steps: int, reporter: Reporter, record: JournalRecord) -> None:
    if record.kind == "event":
        match event_of(record):
            case Start() as start:
                bar.update(start.step)
            case TestEvaluation():
                bar.update(num_steps, record.text)
            case _ if record.level == "warning":
                reporter.warn(f"{name}: {record.text}")
        return
    if record.step is not None:
        bar.update(record.step, f"loss {record.metrics.get('loss', float('nan')):.2f}")
    if "valid" in record.metrics:
        reporter.line(f"{name}: step {record.step}, {record.metrics['valid']:.4g} on the validation split")
