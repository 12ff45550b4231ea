"""One job of an experiment: a system for one seed, trained and judged.

Its folder gets, in this order: `journal.jsonl` and `checkpoints/` (while it trains; of several learning rates each in
`rate-RATE/`), `best.safetensors`, `learning_rates.json` (where several were tried), `predictions.jsonl`, `alignments/`
(of systems that align), `model/` (what it takes to use the system), and at last `result.json`.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from cluster.errors import UserError
from cluster.journal import JOURNAL_NAME, Journal
from cluster.storage import read_document, sha256_file, write_document
from data_prep.tokenizer import CodeTokenizer
from finetune.experiment.config import ExperimentConfig
from finetune.experiment.files import PREDICTIONS_NAME, RESULT_NAME, write_rows
from finetune.experiment.judging import Stopped, Watch
from finetune.experiment.kinds import MODALITIES
from finetune.experiment.overlap import on_unseen
from finetune.experiment.pictures import PICTURES_NAME, draw_pictures
from finetune.experiment.rate_search import Trained, search
from finetune.experiment.results import BOOTSTRAP_SEED, graded
from finetune.experiment.robustness import robustness_of
from finetune.modalities.base import Answers, Evaluation, Source
from finetune.systems.base import Base, System
from finetune.systems.saved import count_parameters, module_of, save_system
from finetune.training.best import load_best
from finetune.training.finetuner import FitEnd, fit
from pretrain.agreement import agreed
from pretrain.health.stop import StopRequest
from pretrain.inference.folders import checked_model

_PREDICTIONS_KEY = "predictions_sha256"


@dataclass(frozen=True)
class Job:
    """A system by name, for one seed."""

    system: str
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.system}, seed {self.seed}"

    @property
    def result(self) -> Path:
        """There once the job is done."""
        return self.folder / RESULT_NAME


@dataclass(frozen=True)
class Workplace:
    """What the jobs of an experiment share in a worker: the base model, the task and its data."""

    config: ExperimentConfig
    base: Base
    data: Any
    evaluation: Evaluation
    overlapping: frozenset[int] = frozenset()
    """The test items that stand in what the base was pretrained on: the headline is also reported without them."""

    @classmethod
    def open(
        cls,
        config: ExperimentConfig,
        model_folder: Path,
        prep: Path | None,
        device: torch.device,
        overlapping: frozenset[int] = frozenset(),
    ) -> "Workplace":
        """Load model description, tokenizer and data. Raises UserError for what cannot be used."""
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
    ) -> "Workplace":
        """Load the data. Raises UserError for what cannot be used."""
        task = config.task.build()
        data = task.load(Source(prep, config.seed))
        evaluation = MODALITIES[config.task.modality].evaluation(task, data, config.training.valid_items)
        return cls(config, base, data, evaluation, overlapping)

    def build(self, job: Job) -> System:
        """The job's system before training. Raises UserError for one that cannot be made, or has nothing to learn."""
        config = self.config.systems[job.system]
        system = config.build(self.base, self.data, job.seed)
        if config.learns and (system.learner is None or not system.learner.lengths_tokens):
            raise UserError(
                f"system {job.system} has nothing to learn from: give the task a training split (task.train=...)"
            )
        return system

    def check(self, jobs: Sequence[Job]) -> None:
        """Raise UserError for what `build` refuses, before hours are spent on the systems that stand before it."""
        for job in {job.system: job for job in jobs}.values():
            self.build(job)


def run_job(job: Job, place: Workplace, stop: StopRequest) -> bool:
    """Train and judge; False when it was stopped. Collective; the first worker writes.

    Unfinished work is resumed, bit for bit. Raises UserError for settings or data that cannot be used.
    """
    job.folder.mkdir(parents=True, exist_ok=True)
    trained = None
    if place.config.systems[job.system].learns:
        trained = _trained(job, place, stop)
        if trained.end.stopped:
            return False
    followed = trained.journal_folder(job.folder) if trained else job.folder
    with _journal(followed) as journal:
        return agreed(lambda: _is_judged(job, place, trained, journal, stop))


@contextmanager
def _journal(folder: Path) -> Iterator[Journal | None]:
    """The first worker's."""
    journal = Journal(folder / JOURNAL_NAME) if dist.get_rank() == 0 else None
    try:
        yield journal
    finally:
        if journal is not None:
            journal.close()


def _trained(job: Job, place: Workplace, stop: StopRequest) -> Trained:
    """After the search of the job's learning rate, where there is one and this is the first seed."""
    config = place.config.training_of_system(job.system)
    if rates := place.config.rates_to_try(job.system, job.seed):
        return search(job.folder, rates, lambda rate, folder: _fit(job, place, rate, folder, stop))
    rate = config.learning_rate
    if config.learning_rates:
        first = Job(job.system, place.config.seed, job.folder.parent / f"seed-{place.config.seed}")
        rate = agreed(lambda: float(read_result(first)["learning_rate"]))
    return Trained(_fit(job, place, rate, job.folder, stop), rate)


def _fit(job: Job, place: Workplace, rate: float, folder: Path, stop: StopRequest) -> FitEnd:
    """One training, from fresh or pretrained weights; what `folder` has of it is resumed."""
    system, config = place.build(job), place.config.training_of_system(job.system).with_rate(rate)
    assert system.learner is not None
    with _journal(folder) as journal:
        return fit(
            system.learner, config, job.seed, folder, lambda: place.evaluation.validate(system), journal, stop
        )


def _with_best_weights(job: Job, place: Workplace) -> System:
    """Built again, because training leaves weights in its own precision."""
    system = place.build(job)
    assert system.learner is not None
    load_best(job.folder, system.learner.module)
    system.learner.module.eval()
    return system


def _is_judged(
    job: Job, place: Workplace, trained: Trained | None, journal: Journal | None, stop: StopRequest
) -> bool:
    """False when it was stopped; nothing is left of it then."""
    system = _with_best_weights(job, place) if trained else place.build(job)

    def watch(what: str, num_items: int) -> Watch:
        return Watch(what, num_items, journal, stop)

    evaluation = place.evaluation
    try:
        answers = evaluation.test(system, watch("the test split", evaluation.num_test_items))
        robustness = robustness_of(
            place.config.robustness, evaluation, system, BOOTSTRAP_SEED, answers.threshold, watch
        )
    except Stopped:
        return False
    write_rows(job.folder / PREDICTIONS_NAME, answers.rows)
    draw_pictures(system, place.evaluation, job.folder / PICTURES_NAME)
    _save(job, place, system, answers.threshold)
    told = {"robustness": robustness, _PREDICTIONS_KEY: sha256_file(job.folder / PREDICTIONS_NAME)}
    write_document(job.result, _result(job, place, system, answers, trained) | told)
    shutil.rmtree(job.folder / "checkpoints", ignore_errors=True)
    return True


def _save(job: Job, place: Workplace, system: System, threshold: float | None) -> None:
    config = place.config
    save_system(
        job.folder / "model",
        config.systems[job.system].model_dump(mode="json"),
        config.task.model_dump(mode="json"),
        job.seed,
        list(getattr(config.task.build(), "labels", ())),
        place.base,
        module_of(system),
        threshold,
    )


def _result(
    job: Job, place: Workplace, system: System, answers: Answers, trained: Trained | None
) -> dict[str, Any]:
    module, end = module_of(system), trained.end if trained else None
    num_parameters, num_trained = count_parameters(module) if module else (0, 0)
    unseen = on_unseen(answers.measured[0], place.overlapping, place.evaluation.num_test_items)
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
        "num_valid_items": place.evaluation.num_valid_items,
        **(trained.told() if trained else {}),
        "cut": answers.cut,
        "facts": dict(place.data.facts),
    }


def read_result(job: Job) -> dict[str, Any]:
    """Of a job that is done. UserError when it, or the predictions beside it, are not what was written."""
    result = read_document(job.result)
    predictions = job.folder / PREDICTIONS_NAME
    # Results of older versions say nothing of them.
    if _PREDICTIONS_KEY in result and (
        not predictions.is_file() or sha256_file(predictions) != result[_PREDICTIONS_KEY]
    ):
        raise UserError(
            f"{predictions} is missing or damaged (checksum differs): remove {job.folder} and run the same command "
            "again"
        )
    return result
