"""Finetuning one system: its batches, loss, validation and best weights."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn

from cluster.errors import UserError
from finetune.modalities.base import Learner
from finetune.training.batches import Batches
from finetune.training.best_weights import Best, is_as_good, is_better, write_best
from finetune.training.config import FitConfig
from pretrain.agreement import agreed
from pretrain.checkpoint.manager import CheckpointManager, newest_checkpoint
from pretrain.checkpoint.reading import CheckpointTensors
from pretrain.checkpoint.retention import remove_unfinished
from pretrain.checkpoint.snapshot import Snapshot, StaticFiles
from pretrain.config import CheckpointConfig
from pretrain.engine.deepspeed_config import EngineSettings
from pretrain.engine.module_engine import ModuleEngine
from pretrain.health.stop import StopRequest
from pretrain.inference.finite import NotFinite
from pretrain.journal.events import Start
from pretrain.journal.recorder import Recorder
from pretrain.step import StepData, StepResult
from pretrain.trainer import Outcome, Trainer, TrainerConfig, TrainState, Validation

_MAX_SKIPPED_STEPS = 5
_KEPT_CHECKPOINTS = 2


class Diverged(UserError):
    """The error for losses or gradients that stay not finite, or too large weights: the learning rate is too high."""


@dataclass(frozen=True)
class FitEnd:
    """The end of a training. `stopped`: a stop was requested, and the same command resumes."""

    steps: int
    best: Best | None
    stopped: bool


def fit(
    learner: Learner,
    config: FitConfig,
    seed: int,
    folder: Path,
    validate: Callable[[], float],
    recorder: Recorder,
    stop: StopRequest,
) -> FitEnd:
    """Train from the newest valid checkpoint on, and save the best weights (see `best.load_best`); collective.

    `validate` returns the headline metric on the validation split, higher is better; the first worker calls it.
    Checkpoints and the best weights are written to `folder`, a record per step to `recorder`, the first worker's.
    Raises Diverged, a UserError, if losses stay not finite, and UserError if the last checkpoint cannot be written.
    """
    trainer = Finetuner(learner, config, seed, folder, validate, recorder, stop)
    try:
        outcome = trainer.train()
        return FitEnd(trainer.state.step, trainer.best, outcome is Outcome.STOPPED)
    finally:
        trainer.close()


class Finetuner(Trainer):
    """Trains a system's network on its examples, from the newest valid checkpoint on."""

    def __init__(
        self,
        learner: Learner,
        config: FitConfig,
        seed: int,
        folder: Path,
        validate: Callable[[], float],
        recorder: Recorder,
        stop: StopRequest,
    ) -> None:
        """Resume from the newest checkpoint, or start, and record it in the journal. Collective.

        Raises UserError if there are checkpoints and none is valid.
        """
        self._learner, self._fit, self._folder, self._validate = learner, config, folder, validate
        self._batches = Batches(learner.lengths_tokens, config.batch_tokens // config.micro_batches, seed)
        self.best: Best | None = None
        self._evaluations_since_better = 0
        """Consecutive evaluations that were not better than the best; an equal one counts too."""
        engine = ModuleEngine(
            learner.module, adamw(learner, config), _engine_settings(config), dist.get_world_size()
        )
        state, checkpoints = TrainState(), folder / "checkpoints"
        agreed(lambda: remove_unfinished(checkpoints))
        newest = newest_checkpoint(checkpoints, recorder)
        if newest is not None:
            stored = CheckpointTensors(newest)
            engine.restore(stored)
            state.step = state.cursor = stored.step
            self.best = Best(**stored.state["best"]) if stored.state["best"] else None
            self._evaluations_since_better = stored.state["evaluations_since_best"]
        cadence = CheckpointConfig(
            every_steps=config.evaluate_every_steps, keep=_KEPT_CHECKPOINTS, keep_best=False
        )
        manager = CheckpointManager(checkpoints, cadence, recorder, state.step or None, StaticFiles({}))
        limits = TrainerConfig(seed, config.steps, config.evaluate_every_steps, _MAX_SKIPPED_STEPS)
        super().__init__(limits, engine, state, manager, recorder, stop)
        where = f"resuming from {newest.name}" if newest is not None else "starting at step 0"
        recorder.begin(where, Start(step=state.step))

    @property
    def is_finished(self) -> bool:
        """Whether all steps are done, or `patience` evaluations in a row were not better."""
        patience = self._fit.patience
        is_patience_over = patience is not None and self._evaluations_since_better >= patience
        return super().is_finished or is_patience_over

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of a step: linear warm-up, then linear decay to 0."""
        return self._fit.learning_rate * rate_share(self._fit, step)

    def read(self, cursor: int) -> StepData:
        """Read this worker's micro-batches of examples."""
        self._learner.module.train()
        each = self._fit.micro_batches // dist.get_world_size()
        micro_batches, num_tokens = [], 0
        for place in range(dist.get_rank() * each, (dist.get_rank() + 1) * each):
            number = cursor * self._fit.micro_batches + place
            indices = self._batches[number].tolist()
            num_tokens += sum(self._learner.lengths_tokens[index] for index in indices)
            micro_batches.append((place, self._learner.batch(indices, number)))
        return StepData(micro_batches, num_tokens)

    def loss(self, micro_batch: Any) -> Tensor:
        """Return the network's own loss."""
        return self.engine.loss(micro_batch)

    def metrics(self, result: StepResult) -> dict[str, float]:
        """Return how often the examples have been used."""
        return {"epoch": float(self._batches.epoch((result.step - 1) * self._fit.micro_batches))}

    def evaluate(self) -> Validation:
        """Evaluate the headline metric, and save the weights if no evaluation was better.

        Raises Diverged if the weights are too large to compute with.
        """
        self._learner.module.eval()
        metric = agreed(self._metric_if_finite)
        if metric is None:
            raise Diverged(
                f"the weights of step {self.state.step} are too large to compute with: use a lower "
                f"training.learning_rate than {self._fit.learning_rate:g}"
            )
        self._evaluations_since_better += 1
        if is_better(metric, self.best):
            self._evaluations_since_better = 0
        if is_as_good(metric, self.best):  # of equal evaluations the last, whose weights have learnt more
            self.best = Best(self.state.step, metric)
            trained = self.engine.masters()
            if dist.get_rank() == 0:
                write_best(self._folder, self.best, trained)
        return Validation({"valid": metric})

    def _metric_if_finite(self) -> float | None:
        try:
            return self._validate()
        except NotFinite:
            return None

    def snapshot(self) -> Snapshot:
        """Copy weights, moments and the best evaluation for a checkpoint."""
        return Snapshot(
            step=self.state.step,
            cursor=self.state.cursor,
            pieces=self.engine.pieces(),
            memory=None,
            first_lane=0,
            state={
                "best": dataclasses.asdict(self.best) if self.best else None,
                "evaluations_since_best": self._evaluations_since_better,
            },
        )

    def fail(self) -> NoReturn:
        """Raise Diverged, when the checkpoint in work has been written."""
        self.checkpoints.wait()
        raise Diverged(
            f"loss or gradient not finite in {len(self.state.skipped)} steps in a row, up to step {self.state.step}: "
            f"use a lower training.learning_rate than {self._fit.learning_rate:g}"
        )


def _engine_settings(config: FitConfig) -> EngineSettings:
    return EngineSettings(
        micro_batches=config.micro_batches,
        micro_batch_items=1,
        precision=config.precision,
        zero_stage=config.zero_stage,
        clip_norm=config.clip_norm,
    )


def rate_share(config: FitConfig, step: int) -> float:
    """Return the share of the peak rate at a step, from 0: linear warm-up, then linear decay to 0."""
    if step < config.warmup_steps:
        return (step + 1) / (config.warmup_steps + 1)
    return 1.0 - (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps)


def adamw(learner: Learner, config: FitConfig) -> torch.optim.AdamW:
    """Build AdamW for the trained parameters, grouped by `weight_decay` and `rate_share`; vectors do not decay.

    Its rate is 0 until `set_learning_rate`, because DeepSpeed's optimizers may make a step of their own when they are
    built.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in learner.module.named_parameters():
        if parameter.requires_grad:
            decay = config.weight_decay if parameter.dim() >= 2 else 0.0
            share = config.layer_decay ** learner.depth(name)
            groups.setdefault((share, decay), []).append(parameter)
    described = [
        {"params": parameters, "weight_decay": decay, "rate_share": share}
        for (share, decay), parameters in sorted(groups.items(), key=lambda group: group[0], reverse=True)
    ]
    return torch.optim.AdamW(described, lr=0.0, betas=(0.9, 0.98), eps=1e-6, fused=True)
