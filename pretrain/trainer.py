"""The training loop that pretraining and finetuning share: resume, step, evaluate, save, stop.

`Trainer` has the loop and the optimizer step. A subclass builds the engine, resumes from a checkpoint, and says what is
read, what its loss is, how it is evaluated and what a checkpoint of it holds: `pretrain.pretrainer.Pretrainer`,
`finetune.training.finetuner.Finetuner`.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from cluster.fault_points import fault_point
from pretrain.checkpoint.manager import CheckpointManager
from pretrain.checkpoint.snapshot import Snapshot
from pretrain.engine.module_engine import ModuleEngine
from pretrain.health.stop import StopRequest
from pretrain.journal.events import Skipped, SuspectData
from pretrain.journal.recorder import Recorder
from pretrain.randomness import seed_dropout

OnPhase = Callable[[int, str, int], None]
"""Called with the step, the phase of it that begins, and the number of the micro-batch: a watchdog's `at`."""


@dataclass(frozen=True)
class StepData:
    """The data of this worker for one step."""

    micro_batches: Sequence[tuple[int, Any]]
    """The index of each in the global batch, and the argument of the trainer's `loss`."""
    num_tokens: int
    digest: int = 0
    """A checksum of the data, which can be added up over workers."""
    wait_s: float = 0.0
    """How long this worker waited for the data."""


@dataclass(frozen=True)
class StepResult:
    """The result of one optimizer step, the same on every worker except for its own times."""

    step: int
    """The number of the step, from 1."""
    cursor: int
    """The data step that was read."""
    loss: float
    """The mean over all micro-batches of all workers."""
    grad_norm: float
    learning_rate: float
    applied: bool
    """Whether loss and gradient were finite; otherwise only `step` and `cursor` changed."""
    num_tokens: int
    digest: int
    """The checksum over all workers, as `num_tokens` is."""
    stop_asked: bool
    step_s: float
    data_s: float
    own_s: float
    """This worker's time before it first waited for another worker."""

    @property
    def not_finite(self) -> str:
        """What was not finite in a step that was not applied: "loss" or "gradient"."""
        return "gradient" if math.isfinite(self.loss) else "loss"


@dataclass(frozen=True)
class Validation:
    """The result of an evaluation during training."""

    metrics: dict[str, float]
    score: float | None = None
    """The headline figure; training fails at its end if it is not finite. None for no such check."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Facts for the step's line in the journal."""


@dataclass
class TrainState:
    """The state that every training carries from step to step, besides weights and moments."""

    step: int = 0
    """The number of optimizer steps done."""
    cursor: int = 0
    """The data step to read next: `step`, plus the data steps that rewinds skipped."""
    skipped: list[StepResult] = field(default_factory=list)
    """The last consecutive steps that were not applied; no checkpoint is written while there are any."""
    evaluated: tuple[int, float | None] | None = None
    """The last step that this process evaluated, and its score."""

    @property
    def score(self) -> float | None:
        """The score of the evaluation after the last step, None without one."""
        return self.evaluated[1] if self.evaluated and self.evaluated[0] == self.step else None


class Outcome(Enum):
    """The ways in which `Trainer.train` ends."""

    FINISHED = "all steps are done, and the last one is in a checkpoint"
    STOPPED = "a stop was requested; the last step is in a checkpoint"
    REWOUND = (
        "it went back to a checkpoint before a loss spike: build another trainer, which resumes from there"
    )


@dataclass(frozen=True)
class TrainerConfig:
    """Settings of the training loop."""

    seed: int
    num_steps: int
    evaluate_every_steps: int
    max_skipped_steps: int
    """How many consecutive steps that are not finite end the training."""


class Trainer(ABC):
    """Trains to the last step. Collective: every worker makes one and calls the same methods."""

    def __init__(
        self,
        config: TrainerConfig,
        engine: ModuleEngine,
        state: TrainState,
        checkpoints: CheckpointManager,
        recorder: Recorder,
        stop: StopRequest,
        on_phase: OnPhase = lambda step, phase, micro_batch: None,
    ) -> None:
        """Create a trainer; `engine` and `state` are new, or restored from the checkpoint that is resumed."""
        self.config, self.engine, self.state = config, engine, state
        self.checkpoints, self.recorder = checkpoints, recorder
        self._stop, self._on_phase = stop, on_phase

    @abstractmethod
    def learning_rate(self, step: int) -> float:
        """Return the learning rate of the step after `step` steps."""

    @abstractmethod
    def read(self, cursor: int) -> StepData:
        """Read this worker's data of a data step. Raises UserError for damaged data."""

    @abstractmethod
    def loss(self, micro_batch: Any) -> Tensor:
        """Return the mean loss of a micro-batch of `read`, for the engine's `accumulate`."""

    @abstractmethod
    def evaluate(self) -> Validation:
        """Evaluate the current model; collective."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Copy this worker's state for a checkpoint; no communication."""

    @abstractmethod
    def fail(self) -> NoReturn:
        """Raise the UserError for steps that stay not finite, or a last evaluation that is not; collective."""

    @property
    def is_finished(self) -> bool:
        """Whether all steps are done."""
        return self.state.step >= self.config.num_steps

    def next_cursor(self, cursor: int) -> int:
        """Return the data step to read after `cursor`."""
        return cursor + 1

    def documents(self, cursor: int) -> list[str]:
        """Return ids of the first documents that all workers read at a data step."""
        return []

    def metrics(self, result: StepResult) -> dict[str, float]:
        """Return metrics for the journal besides loss, rate and speed."""
        return {}

    def end_step(self, result: StepResult) -> None:
        """Update the subclass's state for the next step; called after `state` has advanced."""
        return

    def after_step(self, result: StepResult) -> bool:
        """Check a recorded step; return whether the training went back to an older checkpoint. Collective."""
        return False

    def close(self) -> None:
        """Release the engine; another trainer can be built afterwards."""
        self.engine.close()

    def train(self) -> Outcome:
        """Train until the last step, a stop request or a rewind.

        Raises UserError when losses stay not finite, data are damaged, or the last checkpoint cannot be written.
        """
        while not self.is_finished:
            result = self.train_step()
            self._record(result)
            if self.after_step(result):
                return Outcome.REWOUND
            self._handle_skipped(result)
            if self.state.skipped:
                continue  # no start may resume from weights whose loss or gradient is not finite
            if result.stop_asked and not self.is_finished:
                self._save_and_wait("stop")
                return Outcome.STOPPED
            if self.checkpoints.is_due(self.state.step):
                self._save("cadence")
        if self.state.score is not None and not math.isfinite(self.state.score):
            self.fail()
        self._save_and_wait("end")
        return Outcome.FINISHED

    def train_step(self) -> StepResult:
        """Make an optimizer step: read, predict, sum the gradients, and update the weights if all is finite."""
        state, engine, on_phase = self.state, self.engine, self._on_phase
        rate, cursor = self.learning_rate(state.step), state.cursor
        on_phase(state.step, "read", 0)
        started_s = time.perf_counter()
        data = self.read(cursor)
        own_s, losses = time.perf_counter() - started_s, []

        for number, (place, micro_batch) in enumerate(data.micro_batches):
            forward_s = time.perf_counter()
            on_phase(state.step, "forward", number)
            seed_dropout(self.config.seed, cursor, place)
            loss = self.loss(micro_batch)
            own_s += time.perf_counter() - forward_s
            on_phase(state.step, "backward", number)
            engine.accumulate(loss, place)
            losses.append(loss.detach().float())

        fault_point("step.computed")
        on_phase(state.step, "exchange", 0)
        loss_sum, num_tokens, digest, stops = _sums_over_workers(
            [torch.stack(losses).mean(), data.num_tokens, data.digest, self._stop.is_made()],
            losses[0].device,
        )
        loss_mean = loss_sum / dist.get_world_size()
        fault_point("step.exchanged")
        update = engine.update(rate, is_loss_finite=math.isfinite(loss_mean))
        fault_point("step.updated")

        result = StepResult(
            step=state.step + 1,
            cursor=cursor,
            loss=loss_mean,
            grad_norm=update.grad_norm,
            learning_rate=rate,
            applied=update.applied,
            num_tokens=round(num_tokens),
            digest=round(digest),
            stop_asked=stops > 0,
            step_s=time.perf_counter() - started_s,
            data_s=data.wait_s,
            own_s=own_s,
        )
        state.step, state.cursor = result.step, self.next_cursor(cursor)
        self.end_step(result)
        return result

    def _record(self, result: StepResult) -> None:
        """Write the step's line into the journal, with an evaluation when one is due."""
        metrics = {
            "loss": result.loss,
            "learning_rate": result.learning_rate,
            **self.metrics(result),
            "tokens_per_s": result.num_tokens / result.step_s,
        }
        if result.applied:
            metrics["grad_norm"] = result.grad_norm
        facts: dict[str, Any] = {
            "cursor": result.cursor,
            "digest": result.digest,
            "applied": result.applied,
        }
        if self.is_finished or result.step % self.config.evaluate_every_steps == 0:
            self._on_phase(result.step - 1, "evaluate", 0)
            with self.recorder.span("evaluation_s"):
                evaluation = self.evaluate()
            self.state.evaluated = (result.step, evaluation.score)
            metrics |= evaluation.metrics
            facts |= evaluation.facts
        self.recorder.step(result.step, metrics, result.data_s, result.step_s - result.data_s, **facts)

    def _handle_skipped(self, result: StepResult) -> None:
        """Warn of a step that was not applied; fail after too many in a row."""
        state = self.state
        if result.applied:
            if len(state.skipped) == 1:
                self._suspect_data(state.skipped[0])
            state.skipped = []
            return
        state.skipped.append(result)
        self.recorder.event(
            f"step {result.step} was not applied: its {result.not_finite} is not finite",
            Skipped(
                step=result.step,
                cursor=result.cursor,
                cause=result.not_finite,
                documents=self.documents(result.cursor),
            ),
            "warning",
        )
        if len(state.skipped) >= self.config.max_skipped_steps:
            self.fail()

    def _suspect_data(self, skipped: StepResult) -> None:
        """Record the documents of a single step that was not finite: its neighbours were, so it is not the weights."""
        if documents := self.documents(skipped.cursor):
            self.recorder.event(
                f"only step {skipped.step} was not finite, so its data may be the cause; its first document: "
                f"{documents[0]}",
                SuspectData(step=skipped.step, cursor=skipped.cursor, documents=documents),
                "warning",
            )

    def _save(self, reason: str) -> None:
        self.checkpoints.save(self.state.step, self.snapshot, reason)

    def _save_and_wait(self, reason: str) -> None:
        self._save(reason)
        self.checkpoints.wait_for(self.state.step)


def _sums_over_workers(mine: Sequence[Tensor | int | bool], device: torch.device) -> list[float]:
    """Return the sums of these numbers over all workers; float64 is exact for the digests' sum. Collective."""
    sums = torch.stack([torch.as_tensor(value, dtype=torch.float64, device=device) for value in mine])
    dist.all_reduce(sums)
    return [float(value) for value in sums.tolist()]
