"""The training loop that pretraining and finetuning share: resume, step, evaluate, save, stop.

`Trainer` has the loop and the optimizer step. A subclass builds the engine, resumes from a checkpoint, and says what is
read, what its loss is, how it is evaluated and what a checkpoint of it holds: `pretrain.pretrainer.Pretrainer`,
`finetune.training.finetuner.Finetuner`.

On a GPU the host launches a step and then waits, once, for the figures of the step before it, so that the GPU need not
wait for the host. Whether a step is applied is decided on the device. Before an evaluation, a checkpoint and the end,
and after a step that was not applied or asked to stop, the host waits for the last step too.
"""

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor

from cluster.fault_points import fault_point
from pretrain.checkpoint.manager import CheckpointManager
from pretrain.checkpoint.snapshot import Snapshot
from pretrain.engine.module_engine import ModuleEngine
from pretrain.health.stop import StopRequest
from pretrain.journal.events import Skipped, SuspectData
from pretrain.journal.recorder import Recorder
from pretrain.randomness import seed_dropout
from pretrain.step import LaunchedStep, StepData, StepResult
from pretrain.step_figures import OwnFigures, SummedFigures

OnPhase = Callable[[int, str, int], None]
"""Called with the step, the phase of it that begins, and the number of the micro-batch: a watchdog's `at`."""


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
    """The number of optimizer steps done, or launched."""
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

    LAG_STEPS: ClassVar[Mapping[str, int]] = {"cuda": 1}
    """How many steps the host launches before it waits for the figures of one, by the device's type; 0 for others."""

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
        lag_steps = self.LAG_STEPS.get(engine.device.type, 0) if engine.decides_on_device else 0
        # A step that must end the training is known before another one is launched.
        self._lag_steps = min(lag_steps, config.max_skipped_steps - 1)
        self._launched: deque[LaunchedStep] = deque()
        """The steps whose figures are not known yet."""
        self._is_stop_asked = False
        self._handled_s, self._data_s = time.perf_counter(), 0.0
        """When the last result was handled, and how long this worker has waited for data since."""

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

    def carry(self, is_applied: Tensor) -> None:
        """Update what the next step needs of a step that was launched; called after `state` has advanced.

        Whether the step is applied (bool [], on the device) is not known to the host.
        """
        return

    def prepare(self) -> float:
        """Prepare the data of the next step, while the device works; return how long this worker waited for data."""
        return 0.0

    def after_step(self, result: StepResult) -> bool:
        """Check a recorded step; return whether the training went back to an older checkpoint. Collective.

        Another step may have been launched meanwhile; after a return to a checkpoint it is forgotten.
        """
        return False

    def close(self) -> None:
        """Release the engine; another trainer can be built afterwards."""
        self.engine.close()

    def train(self) -> Outcome:
        """Train until the last step, a stop request or a rewind.

        Raises UserError when losses stay not finite, data are damaged, or the last checkpoint cannot be written.
        """
        while not self.is_finished:
            self._launched.append(self.train_step())
            if not self.is_finished:
                self._data_s += self.prepare()
            while len(self._launched) > self._allowed_lag_steps():
                outcome = self._handle(self._result(self._launched.popleft()))
                if outcome is not None:
                    return outcome
        if self.state.score is not None and not math.isfinite(self.state.score):
            self.fail()
        self._save_and_wait("end")
        return Outcome.FINISHED

    def train_step(self) -> LaunchedStep:
        """Launch an optimizer step: read, predict, sum the gradients, and update the weights if all is finite."""
        state, engine, on_phase = self.state, self.engine, self._on_phase
        rate, cursor = self.learning_rate(state.step), state.cursor
        on_phase(state.step, "read", 0)
        started_s = time.perf_counter()
        data = self.read(cursor)
        self._data_s += data.wait_s
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
        mean = torch.stack(losses).mean()
        mine = OwnFigures(mean, data.num_tokens, data.digest, self._stop.is_made(), own_s)
        summed = SummedFigures(mine)
        fault_point("step.exchanged")
        update = engine.update(rate, summed.is_loss_finite)
        fault_point("step.updated")

        figures = summed.sent(update.grad_norm, update.is_applied)
        launched = LaunchedStep(state.step + 1, cursor, rate, started_s, figures)
        state.step, state.cursor = launched.step, self.next_cursor(cursor)
        self.carry(update.is_applied)
        return launched

    def _allowed_lag_steps(self) -> int:
        """Return for how many steps the host need not wait now: none where the state must be that of a known step."""
        step = self.state.step
        is_state_needed = (
            self.is_finished
            or step % self.config.evaluate_every_steps == 0
            or self.checkpoints.is_due(step)
            or bool(self.state.skipped)
            or self._is_stop_asked
        )
        return 0 if is_state_needed else self._lag_steps

    def _result(self, launched: LaunchedStep) -> StepResult:
        """Wait for the figures of a step."""
        self._on_phase(self.state.step - 1, "exchange", 0)
        figures = launched.figures.read()
        since_s, data_s = max(launched.started_s, self._handled_s), self._data_s
        self._data_s = 0.0
        return StepResult(
            step=launched.step,
            cursor=launched.cursor,
            loss=figures.loss,
            grad_norm=figures.grad_norm,
            learning_rate=launched.learning_rate,
            applied=figures.is_applied,
            num_tokens=figures.num_tokens,
            digest=figures.digest,
            stop_asked=figures.is_stop_asked,
            step_s=time.perf_counter() - since_s,
            data_s=data_s,
            own_s_W=figures.own_s_W,
        )

    def _handle(self, result: StepResult) -> Outcome | None:
        """Record a step and do what follows from it; return how the training ends, None if it goes on."""
        self._record(result)
        has_gone_back = self.after_step(result)
        self._handled_s = time.perf_counter()
        if has_gone_back:
            self._launched.clear()
            return Outcome.REWOUND
        self._handle_skipped(result)
        self._is_stop_asked = self._is_stop_asked or result.stop_asked
        # No start may resume from weights whose loss or gradient is not finite, or is not known to be.
        if self.state.skipped or self._launched:
            return None
        if self._is_stop_asked and not self.is_finished:
            self._save_and_wait("stop")
            return Outcome.STOPPED
        if self.checkpoints.is_due(self.state.step):
            self._save("cadence")
        return None

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
        is_last = self.is_finished and not self._launched
        if is_last or result.step % self.config.evaluate_every_steps == 0:
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
