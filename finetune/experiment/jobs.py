"""The jobs of an experiment: a system for one seed, trained and evaluated.

A job writes to its folder, in this order: `journal.jsonl` and `checkpoints/` (during training; in `rate-RATE/` for each
of several learning rates), `best.safetensors`, `learning_rates.json` (if several were tried), `predictions.jsonl`,
`alignments/` (of systems that align), `model/` (all that is needed to use the system), and finally `result.json`.
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from cluster import structured_log
from cluster.errors import UserError
from cluster.journal import JOURNAL_NAME, Journal
from cluster.lease import Lease
from cluster.storage import read_document, sha256_file, write_document
from cluster.watch import sigterm_received
from data_prep.tokenizer import CodeTokenizer
from finetune.experiment.config import ExperimentConfig
from finetune.experiment.dealing import dealt_jobs
from finetune.experiment.files import PREDICTIONS_NAME, write_rows
from finetune.experiment.job import Job
from finetune.experiment.kinds import MODALITIES
from finetune.experiment.overlap import on_unseen
from finetune.experiment.pictures import PICTURES_NAME, draw_pictures
from finetune.experiment.rate_search import Trained, search
from finetune.experiment.results import BOOTSTRAP_SEED, graded
from finetune.experiment.robustness import robustness_of
from finetune.modalities.base import Answers, Evaluation, Source
from finetune.systems.base import Base, System
from finetune.systems.saved import count_parameters, module_of, save_system
from finetune.training.best_weights import load_best
from finetune.training.finetuner import FitEnd, fit
from pretrain.agreement import agreed
from pretrain.gpu_check import check_precision
from pretrain.health.stop import StopRequest, stop_requests
from pretrain.inference.folders import checked_model
from pretrain.joined import joined
from pretrain.journal.events import TestEvaluation
from pretrain.journal.recorder import Recorder

_PREDICTIONS_KEY = "predictions_sha256"
WRITE_EVERY_S = 10.0


@dataclass(frozen=True)
class JobContext:
    """The state that the jobs of an experiment share in a worker: the base model, the task and its data."""

    config: ExperimentConfig
    base: Base
    data: Any
    evaluation: Evaluation
    overlapping: frozenset[int] = frozenset()
    """The test items that the base's pretraining data contains: the headline is also reported without them."""
    lease: Lease | None = None
    """The right of this attempt to write; None where nobody else can write in the job's folder."""

    @classmethod
    def open(
        cls,
        config: ExperimentConfig,
        model_folder: Path,
        prep: Path | None,
        device: torch.device,
        overlapping: frozenset[int] = frozenset(),
    ) -> "JobContext":
        """Load the model description, tokenizer and data. Raises UserError for files that cannot be used."""
        files, description = checked_model(model_folder)
        base = Base(description, CodeTokenizer.load(files.tokenizer), files, device)
        return cls.of_base(config, base, prep, overlapping)

    @classmethod
    def of_base(
        cls,
        config: ExperimentConfig,
        base: Base,
        prep: Path | None,
        overlapping: frozenset[int] = frozenset(),
    ) -> "JobContext":
        """Load the data of the task. Raises UserError for data that cannot be used."""
        task = config.task.build()
        data = task.load(Source(prep, config.seed))
        evaluation = MODALITIES[config.task.modality].evaluation(task, data, config.training.valid_items)
        return cls(config, base, data, evaluation, overlapping)

    def build(self, job: Job) -> System:
        """Build the job's system before training. Raises UserError if it cannot be built or has no training data."""
        config = self.config.systems[job.system]
        system: System = config.build(self.base, self.data, job.seed)
        if config.learns and (system.learner is None or not system.learner.lengths_tokens):
            raise UserError(
                f"system {job.system} has no training data: give the task a training split (task.train=...)"
            )
        return system

    def check(self, jobs: Sequence[Job]) -> None:
        """Raise UserError if `build` fails for any job, before hours are spent on the systems listed before it."""
        for job in {job.system: job for job in jobs}.values():
            self.build(job)


class StopRequested(Exception):
    """A stop was requested. The unfinished evaluation is discarded; the same command evaluates again."""


class EvaluationProgress:
    """An `OnProgress` for the items of one evaluation: writes the progress to the journal, and stops on request."""

    def __init__(self, what: str, num_items: int, journal: Journal | None, stop: StopRequest) -> None:
        """Write the start to the journal. `what` names what is evaluated: "the test split"."""
        self._what, self._num_items, self._journal, self._stop = what, num_items, journal, stop
        self._written_s = time.monotonic()
        self._write(f"evaluating {what}")

    def __call__(self, num_done: int) -> None:
        """Write the progress if the last entry is old enough. Raises `StopRequested` if a stop was requested."""
        if self._stop.is_made():
            raise StopRequested
        if time.monotonic() - self._written_s >= WRITE_EVERY_S:
            self._written_s = time.monotonic()
            self._write(f"evaluating {self._what}, {num_done:,} of {self._num_items:,} items")

    def _write(self, text: str) -> None:
        if self._journal is not None:
            self._journal.event(text, name=TestEvaluation.name, num_items=self._num_items)


def run_jobs(settings: dict[str, Any]) -> None:
    """Run the jobs that the command deals to this group of workers; end early when a stop is requested.

    Ray Train runs this in every worker of an experiment.
    """
    jobs: list[Job] = settings["jobs"]
    with joined(settings, "finetune") as device:
        check_precision(settings["config"].training.precision, device)
        folder, lease = settings["folder"], settings["lease"]
        with stop_requests(folder, dist.get_rank() == 0, sigterm_received) as stop:
            context = JobContext.open(
                settings["config"], settings["model"], settings["prep"], device, settings["overlapping"]
            )
            context = replace(context, lease=lease)
            # The first worker decides, so that all run the same jobs.
            missing = [job for job in jobs if not agreed(job.result.exists)]
            context.check(missing)
            for job in dealt_jobs(folder, lease.attempt, jobs, stop):
                if job not in missing:
                    continue
                with structured_log.at(system=job.key):
                    if not run_job(job, context, stop):
                        return


def run_job(job: Job, context: JobContext, stop: StopRequest) -> bool:
    """Train and evaluate a job; return False when it was stopped. Collective; the first worker writes.

    Unfinished work is resumed, bit for bit. Raises UserError for settings or data that cannot be used.
    """
    job.folder.mkdir(parents=True, exist_ok=True)
    trained = None
    if context.config.systems[job.system].learns:
        trained = _train(job, context, stop)
        if trained.end.stopped:
            return False
    followed = trained.journal_folder(job.folder) if trained else job.folder
    with _journal(followed) as journal:
        return agreed(lambda: _evaluate(job, context, trained, journal, stop))


@contextmanager
def _journal(folder: Path) -> Iterator[Journal | None]:
    """Open the journal on the first worker; the others get None."""
    journal = Journal(folder / JOURNAL_NAME) if dist.get_rank() == 0 else None
    try:
        yield journal
    finally:
        if journal is not None:
            journal.close()


def _train(job: Job, context: JobContext, stop: StopRequest) -> Trained:
    """Train the job, with a search over learning rates if the config has one and this is the first seed."""
    config = context.config.training_of_system(job.system)
    if rates := context.config.rates_to_try(job.system, job.seed):
        return search(
            job.folder, rates, lambda rate, folder: _train_at_rate(job, context, rate, folder, stop)
        )
    rate = config.learning_rate
    if config.learning_rates:
        first = Job(job.system, context.config.seed, job.folder.parent / f"seed-{context.config.seed}")
        rate = agreed(lambda: float(read_result(first)["learning_rate"]))
    return Trained(_train_at_rate(job, context, rate, job.folder, stop), rate)


def _train_at_rate(job: Job, context: JobContext, rate: float, folder: Path, stop: StopRequest) -> FitEnd:
    """Train once, from random or pretrained weights; resume a training that was started in `folder`."""
    system, config = context.build(job), context.config.training_of_system(job.system).with_rate(rate)
    assert system.learner is not None
    with _journal(folder) as journal:
        return fit(
            system.learner,
            config,
            job.seed,
            folder,
            lambda: context.evaluation.validate(system),
            Recorder(journal, context.lease),
            stop,
        )


def _build_with_best_weights(job: Job, context: JobContext) -> System:
    """Build the system again, because training leaves weights in its own precision, and load the best weights."""
    system = context.build(job)
    assert system.learner is not None
    load_best(job.folder, system.learner.module)
    system.learner.module.eval()
    return system


def _evaluate(
    job: Job, context: JobContext, trained: Trained | None, journal: Journal | None, stop: StopRequest
) -> bool:
    """Evaluate the system and write the results; return False, with nothing written, when it was stopped."""
    system = _build_with_best_weights(job, context) if trained else context.build(job)

    def watch(what: str, num_items: int) -> EvaluationProgress:
        return EvaluationProgress(what, num_items, journal, stop)

    evaluation = context.evaluation
    try:
        answers = evaluation.test(system, watch("the test split", evaluation.num_test_items))
        robustness = robustness_of(
            context.config.robustness, evaluation, system, BOOTSTRAP_SEED, answers.threshold, watch
        )
    except StopRequested:
        return False
    if context.lease is not None:
        context.lease.check()
    write_rows(job.folder / PREDICTIONS_NAME, answers.rows)
    draw_pictures(system, context.evaluation, job.folder / PICTURES_NAME)
    save_job(job, context, system, answers.threshold)
    values = {"robustness": robustness, _PREDICTIONS_KEY: sha256_file(job.folder / PREDICTIONS_NAME)}
    write_document(job.result, _result_values(job, context, system, answers, trained) | values)
    shutil.rmtree(job.folder / "checkpoints", ignore_errors=True)
    return True


def save_job(job: Job, context: JobContext, system: System, threshold: float | None) -> None:
    config = context.config
    save_system(
        job.folder / "model",
        config.systems[job.system].model_dump(mode="json"),
        config.task.model_dump(mode="json"),
        job.seed,
        list(getattr(config.task.build(), "labels", ())),
        context.base,
        module_of(system),
        threshold,
    )


def _result_values(
    job: Job, context: JobContext, system: System, answers: Answers, trained: Trained | None
) -> dict[str, Any]:
    module, end = module_of(system), trained.end if trained else None
    num_parameters, num_trained = count_parameters(module) if module else (0, 0)
    unseen = on_unseen(answers.measured[0], context.overlapping, context.evaluation.num_test_items)
    return {
        "system": job.system,
        "seed": job.seed,
        **graded([*answers.measured, *unseen]),
        "num_parameters": num_parameters,
        "num_trained": num_trained,
        "threshold": answers.threshold,
        "steps": end.steps if end else 0,
        "best_step": end.best.step if end and end.best else 0,
        "valid": end.best.metric if end and end.best else None,
        "num_valid_items": context.evaluation.num_valid_items,
        **(trained.result_values() if trained else {}),
        "cut": answers.cut,
        "facts": dict(context.data.facts),
    }


def read_result(job: Job) -> dict[str, Any]:
    """Read the result of a finished job. Raises UserError if it or its predictions file was changed."""
    result = read_document(job.result)
    predictions = job.folder / PREDICTIONS_NAME
    # Results of older versions have no checksum of the predictions.
    if _PREDICTIONS_KEY in result and (
        not predictions.is_file() or sha256_file(predictions) != result[_PREDICTIONS_KEY]
    ):
        raise UserError(
            f"{predictions} is missing or damaged (checksum differs): remove {job.folder} and run the same command "
            "again"
        )
    return result
