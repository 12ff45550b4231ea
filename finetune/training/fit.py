"""Training one system: steps, evaluations, commits. Killed anywhere, it goes on from its last commit, bit for bit."""

import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from cluster.errors import UserError
from cluster.fault_points import fault_point
from cluster.journal import Journal
from finetune.systems.base import Learner
from finetune.training.batches import Batches
from finetune.training.best import Best, is_as_good, is_better, write_best
from finetune.training.config import FitConfig
from finetune.training.rates import adamw, rate_share
from finetune.training.saving import FitSaver
from finetune.training.state import FitState
from pretrain.agreement import agreed
from pretrain.engine.module_engine import ModuleEngine
from pretrain.engine.settings import EngineSettings
from pretrain.health.stop import StopRequest
from pretrain.inference.finite import NotFinite
from pretrain.randomness import seed_dropout

_MAX_SKIPPED = 5


class Diverged(UserError):
    """Losses or gradients that stay not finite: the learning rate is too high."""


@dataclass(frozen=True)
class FitEnd:
    """How training ended. `stopped`: somebody asked for it, and the same command goes on."""

    steps: int
    best: Best | None
    stopped: bool


class Fit:
    """The training of one system. Collective: every worker makes it and calls `run`."""

    def __init__(
        self,
        learner: Learner,
        config: FitConfig,
        seed: int,
        folder: Path,
        validate: Callable[[], float],
        journal: Journal | None,
        stop: StopRequest,
    ) -> None:
        """`validate` gives the headline metric on the validation split, higher is better; the first worker calls it.

        `folder` gets commits and the best weights; `journal`, the first worker's, a record per step.
        """
        self._learner, self._config, self._seed, self._folder = learner, config, seed, folder
        self._validate, self._journal, self._stop = validate, journal, stop
        self._batches = Batches(learner.lengths_tokens, config.batch_tokens // config.micro_batches, seed)
        self._own = _own_micro_batches(config.micro_batches)

    def run(self) -> FitEnd:
        """Train, from the newest valid commit on, and leave the best weights; see `best.load_best`.

        Raises Diverged, a UserError, when losses stay not finite, and UserError when a commit at the end could not be
        written.
        """
        settings = EngineSettings(
            micro_batches=self._config.micro_batches,
            micro_batch_items=1,
            precision=self._config.precision,
            zero_stage=self._config.zero_stage,
            clip_norm=self._config.clip_norm,
        )
        world_size = dist.get_world_size()
        engine = ModuleEngine(self._learner.module, adamw(self._learner, self._config), settings, world_size)
        try:
            return self._train(engine)
        finally:
            engine.close()

    def _train(self, engine: ModuleEngine) -> FitEnd:
        state = FitState()
        saver = FitSaver(self._folder, self._config, self._journal, agreed(_new_token))
        saver.resume(engine, state)
        stopped = False
        while state.step < self._config.steps and not self._is_patience_over(state):
            metrics, stopped = self._step(engine, state)
            is_due = state.step % self._config.evaluate_every_steps == 0 or state.step == self._config.steps
            if is_due:
                metrics["valid"] = self._evaluate(engine, state)
            self._record(state.step, metrics)
            if state.skipped_in_a_row:
                continue  # the weights that made them not finite must not be what a start resumes from
            if is_due:
                saver.save(engine, state)
            if stopped:
                break
        finished = state.step == self._config.steps or self._is_patience_over(state)
        saver.save(engine, state)
        saver.wait(state)
        return FitEnd(state.step, state.best, stopped and not finished)

    def _is_patience_over(self, state: FitState) -> bool:
        patience = self._config.patience
        return patience is not None and state.evaluations_since_better >= patience

    def _step(self, engine: ModuleEngine, state: FitState) -> tuple[dict[str, float], bool]:
        """One optimizer step: its metrics, and whether somebody asked to stop."""
        config, started_s = self._config, time.perf_counter()
        self._learner.module.train()
        losses, num_tokens = [], 0
        for place in self._own:
            number = state.step * config.micro_batches + place
            indices = self._batches[number].tolist()
            num_tokens += sum(self._learner.lengths_tokens[index] for index in indices)
            batch = self._learner.batch(indices, number)
            seed_dropout(self._seed, state.step, place)
            loss = engine.loss(batch)
            engine.accumulate(loss, place)
            losses.append(loss.detach().float())
        fault_point("step.computed")
        rate = config.learning_rate * rate_share(config, state.step)
        update = engine.update(rate)
        mine = [torch.stack(losses).mean().item() / dist.get_world_size(), num_tokens, self._stop.is_made()]
        loss_mean, tokens, stops = _sums(mine, losses[0].device)
        state.step += 1
        self._refuse_many_skips(state, update.applied, loss_mean)
        metrics = {
            "loss": loss_mean,
            "learning_rate": rate,
            "epoch": float(self._batches.epoch((state.step - 1) * config.micro_batches)),
            "tokens_per_s": tokens / (time.perf_counter() - started_s),
        }
        if update.applied:
            metrics["grad_norm"] = update.grad_norm
        return metrics, stops > 0

    def _refuse_many_skips(self, state: FitState, applied: bool, loss: float) -> None:
        if applied:
            state.skipped_in_a_row = 0
            return
        state.skipped_in_a_row += 1
        if self._journal is not None:
            self._journal.event(
                f"step {state.step} was not applied: loss {loss} or its gradient is not finite",
                "warning",
                name="skipped",
            )
        if state.skipped_in_a_row >= _MAX_SKIPPED:
            raise Diverged(
                f"loss or gradient not finite in {_MAX_SKIPPED} steps in a row, up to step {state.step}: use a lower "
                f"training.learning_rate than {self._config.learning_rate:g}"
            )

    def _evaluate(self, engine: ModuleEngine, state: FitState) -> float:
        """The headline metric, kept with the weights where none was better; collective. Diverged where they are too
        large to compute with."""
        self._learner.module.eval()
        metric = agreed(self._metric_if_finite)
        if metric is None:
            raise Diverged(
                f"the weights of step {state.step} are too large to compute with: use a lower training.learning_rate "
                f"than {self._config.learning_rate:g}"
            )
        state.evaluations_since_better += 1
        if is_better(metric, state.best):
            state.evaluations_since_better = 0
        if is_as_good(metric, state.best):  # of equal ones the weights that have learnt more
            state.best = Best(state.step, metric)
            trained = engine.masters()
            if dist.get_rank() == 0:
                write_best(self._folder, state.best, trained)
        return metric

    def _metric_if_finite(self) -> float | None:
        try:
            return self._validate()
        except NotFinite:
            return None

    def _record(self, step: int, metrics: dict[str, float]) -> None:
        if self._journal is not None:
            self._journal.step(step, {name: one for name, one in metrics.items() if math.isfinite(one)})
            fault_point("step.recorded")


def _own_micro_batches(num_micro_batches: int) -> range:
    each = num_micro_batches // dist.get_world_size()
    return range(dist.get_rank() * each, (dist.get_rank() + 1) * each)


def _sums(mine: list[Any], device: torch.device) -> list[float]:
    """Of these numbers over all workers."""
    sums = torch.tensor([float(value) for value in mine], dtype=torch.float64, device=device)
    dist.all_reduce(sums)
    return [float(value) for value in sums.tolist()]


def _new_token() -> str:
    """One that no other attempt had."""
    return secrets.token_hex(4)
