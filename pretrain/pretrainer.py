"""Pretraining: the permutation language model's data, loss, evaluation, checkpoints and result."""

from itertools import islice
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

from cluster.errors import UserError
from cluster.fault_points import fault_point
from cluster.journal import read_journal
from cluster.storage import write_document
from pretrain.agreement import agreed, agreed_in_parts
from pretrain.checkpoint.compatibility import check_num_steps, check_resumable
from pretrain.checkpoint.finding import last_valid_before_of_all
from pretrain.checkpoint.listing import step_folders, step_of
from pretrain.checkpoint.manager import CheckpointManager
from pretrain.checkpoint.reading import CheckpointTensors
from pretrain.checkpoint.retention import VALIDATION, discard_newer
from pretrain.checkpoint.snapshot import Snapshot, StaticFiles
from pretrain.data.batch import Batch, ordered_batch
from pretrain.data.device_feed import DeviceFeed
from pretrain.data.lanes import LaneReader
from pretrain.data.prefetch import LaneFeed
from pretrain.engine.training_engine import TrainingEngine
from pretrain.figures import VALIDATION_BYTES_FACT
from pretrain.files import PretrainFiles
from pretrain.health.divergence import (
    first_high_loss_step,
    first_skipped_step,
    last_good_step,
    losses_text,
    resume_command,
)
from pretrain.health.rewinds import Rewind, record_rewind, write_rewinds
from pretrain.health.spikes import Spike, SpikeDetector
from pretrain.journal import events
from pretrain.journal.replay import replayed
from pretrain.lane_memory import LaneMemory
from pretrain.model.segment_memory import SegmentMemory
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.orders.sampling import OrderMixture
from pretrain.orders.words import WordPieces
from pretrain.randomness import key_seed
from pretrain.resume import ResumePoint, prepare_resume
from pretrain.run_context import RunContext
from pretrain.schedule import learning_rate
from pretrain.step import StepData, StepResult
from pretrain.trainer import Trainer, TrainerConfig, TrainState, Validation
from pretrain.weights import ModelDescription, save_model

_MAX_DOCUMENTS = 50
_MAX_COUNTED_TOKENS = 1 << 26
"""The most tokens that the n-gram baselines count: one worker counts while the others wait."""


class Pretrainer(Trainer):
    """Trains a two-stream model on the lanes of a corpus, starting from the newest valid checkpoint."""

    engine: TrainingEngine

    def __init__(self, context: RunContext, is_first_start: bool) -> None:
        """Resume and record it in the journal; `is_first_start` is false after a rewind. Collective.

        Raises UserError when no checkpoint is valid or the newest is of another run.
        """
        run, config, health = context.run, context.run.config, context.run.config.health
        origin = prepare_resume(run, context.recorder)
        context.watchdog.at(0, "start")
        fault_point("start.agreed")
        per_worker = config.lanes // dist.get_world_size()
        model = _fresh_model(context)
        # float32, as the model is before the engine rounds it
        self._memory = LaneMemory(model.empty_memory(per_worker))
        engine = TrainingEngine(model, config, dist.get_world_size())
        state = TrainState(cursor=origin.rewinds.first_from(0))
        words = WordPieces.of_tokenizer(context.corpus.tokenizer, context.device)
        self._context, self._rewinds = context, origin.rewinds
        self._lanes = range(dist.get_rank() * per_worker, (dist.get_rank() + 1) * per_worker)
        self._reader = LaneReader(context.corpora, "train", config.lanes, config.segment_tokens, run.seed)
        self._mixture = OrderMixture(config.objective, config.segment_tokens, words, context.device)
        self._spikes = SpikeDetector(
            health.spike_window_steps, health.spike_threshold, health.spike_patience_steps
        )
        self._cursors: dict[int, int] = {}
        """The cursors of the last step and of all steps that a spike may include, by step: a rewind skips them."""
        if origin.checkpoint is not None:
            self._restore(engine, state, CheckpointTensors.opened_for_all(origin.checkpoint))
            fault_point("start.restored")
        elif run.accepted and origin.num_attempts > 1:
            context.recorder.event(
                "accepted: there is no checkpoint to compare with", events.Accepted(), "warning"
            )
        checkpoints = CheckpointManager(
            run.checkpoints,
            config.checkpoint,
            context.recorder,
            state.step or None,
            _static_files(context, model),
            on_wait=lambda step: context.watchdog.at(step - 1, "save"),
        )
        limits = TrainerConfig(
            run.seed, config.num_steps, config.validation.every_steps, health.max_skipped_steps
        )
        super().__init__(
            limits, engine, state, checkpoints, context.recorder, context.stop, context.watchdog.at
        )
        feed = LaneFeed(self._reader, self._lanes, state.cursor)
        self._feed = DeviceFeed(feed, context.device, config.model.segment_encodings)
        self._record_start(origin, is_first_start)

    def _restore(self, engine: TrainingEngine, state: TrainState, stored: CheckpointTensors) -> None:
        """Restore everything from a checkpoint."""
        run = self._context.run
        for change in check_resumable(stored.identity, self._context.identity, run.accepted):
            self._context.recorder.event(f"accepted: {change}", events.Accepted(key=change.key), "warning")
        check_num_steps(stored.step, run.config)
        engine.restore(stored)
        self._memory = LaneMemory(stored.memory(self._lanes).to(self._context.device))
        if stored.state["rewinds_seen"] > len(self._rewinds):
            raise UserError(
                f"{stored.folder} was written after {stored.state['rewinds_seen']} rewinds, but rewinds.json in "
                f"{run.folder} has {len(self._rewinds)}: restore that file, or use another --out"
            )
        state.step = stored.step
        # A rewind may skip the data after the checkpoint.
        state.cursor = self._rewinds.first_from(stored.cursor)
        self._spikes.restore(stored.state["spikes"])
        self._cursors = {int(step): cursor for step, cursor in stored.state["cursors"]}

    def _record_start(self, origin: ResumePoint, is_first_start: bool) -> None:
        config, state = self._context.run.config, self.state
        name = origin.checkpoint.name if origin.checkpoint else None
        where = f"resuming from checkpoint {name}" if name else "starting at step 0"
        text = (
            f"{where}: {dist.get_world_size()} workers, {config.precision}, ZeRO stage {config.zero_stage}, "
            f"{dist.get_backend()}"
        )
        start = (events.Start if is_first_start else events.StartAfterRewind)(
            attempt=origin.num_attempts,
            step=state.step,
            cursor=state.cursor,
            checkpoint=name,
            world_size=dist.get_world_size(),
            zero_stage=config.zero_stage,
            precision=config.precision,
            num_steps=config.num_steps,
            lanes=config.lanes,
            segment_tokens=config.segment_tokens,
            corpus=self._context.identity.corpus,
            rewind_patience_steps=config.health.spike_patience_steps
            if config.health.spikes == "rewind"
            else None,
        )
        self.recorder.begin(text, start)

    def learning_rate(self, step: int) -> float:
        """Return the schedule's learning rate."""
        return learning_rate(self._context.run.config.schedule, step, self.config.num_steps)

    def read(self, cursor: int) -> StepData:
        """Read one segment of each of this worker's lanes and draw its order of prediction."""
        config = self._context.run.config
        segments, waited_s = self._feed.take(cursor)
        batch = ordered_batch(segments, self._mixture, self.config.seed)
        size = config.micro_batch_lanes
        micro_batches = [
            (
                self._lanes[first] // size,
                (batch.part(first, first + size), self._memory.all.lanes(first, first + size)),
            )
            for first in range(0, len(self._lanes), size)
        ]
        num_tokens = len(self._lanes) * config.segment_tokens
        return StepData(micro_batches, num_tokens, segments.read.digest, waited_s)

    def prepare(self) -> float:
        """On a GPU, copy the segments of the next step ahead."""
        return self._feed.prepare(self.state.cursor)

    def loss(self, micro_batch: tuple[Batch, SegmentMemory]) -> Tensor:
        """Return the mean negative log-likelihood of the predicted tokens."""
        batch, memory = micro_batch
        output = self.engine.forward_loss(
            batch.tokens_BL, batch.content, batch.targets, memory, batch.wanted_BP
        )
        self._memory.add(output.memory)
        return output.loss

    def carry(self, is_applied: Tensor) -> None:
        """Carry the memory of the step's segments to the next step, or the old one if the step is not applied."""
        self._memory.end_step(is_applied)

    def next_cursor(self, cursor: int) -> int:
        """Return the next data step that no rewind skips."""
        return self._rewinds.next_cursor(cursor)

    def metrics(self, result: StepResult) -> dict[str, float]:
        """Return the number of tokens read so far."""
        return {"tokens": float(result.step * self._context.run.config.tokens_per_step)}

    def documents(self, cursor: int) -> list[str]:
        """Return ids of the first documents that the lanes read."""
        found = (name for lane in range(self._reader.lanes) for name in self._reader.documents(cursor, lane))
        return list(islice(found, _MAX_DOCUMENTS))

    def evaluate(self) -> Validation:
        """Evaluate on the sample for training; the score is bits per byte."""
        evaluation = self._context.evaluator.during(self.engine.module)
        headline = evaluation.headline
        return Validation(
            evaluation.metrics(), headline.bits_per_byte, {VALIDATION_BYTES_FACT: headline.num_bytes}
        )

    def snapshot(self) -> Snapshot:
        """Copy weights, moments, memory and the state of spikes and rewinds."""
        remembered: dict[str, Any] = {
            "spikes": self._spikes.to_json(),
            "cursors": list(self._cursors.items()),
            "rewinds_seen": len(self._rewinds),
        }
        if self.state.score is not None:
            remembered[VALIDATION] = self.state.score
        return Snapshot(
            step=self.state.step,
            cursor=self.state.cursor,
            pieces=self.engine.pieces(),
            # The next step makes new memory and does not change this one, so it needs no copy.
            memory=self._memory.all,
            first_lane=self._lanes.start,
            state=remembered,
        )

    def after_step(self, result: StepResult) -> bool:
        """Compare the workers' times when that is due; check for a loss spike, and rewind if the config says so."""
        self._context.own_time.add(result.step, result.own_s_W)
        self._cursors = {step: cursor for step, cursor in self._cursors.items() if self._spikes.covers(step)}
        self._cursors[result.step] = result.cursor
        spikes = self._context.run.config.health.spikes
        spike = self._spikes.see(result.step, result.loss) if result.applied else None
        if spike is None or spikes == "off":
            return False
        text = (
            f"loss rose to {spike.loss:.3f} in steps {spike.first_step} to {spike.last_step}, "
            f"{(spike.loss - spike.median) / spike.deviation:.0f} deviations above {spike.median:.3f}"
        )
        seen = events.SpikeSeen(first_step=spike.first_step, last_step=spike.last_step)
        self.recorder.event(text, seen, "warning")
        return spikes == "rewind" and self._rewind(spike, text)

    def _rewind(self, spike: Spike, cause: str) -> bool:
        """Record a rewind and remove the checkpoints after its target; return False if there is no target."""
        run = self._context.run
        self.checkpoints.wait()
        back_to = last_valid_before_of_all(run.checkpoints, spike.first_step)
        refusal = None
        if len(self._rewinds) >= run.config.health.max_rewinds:
            refusal = f"health.max_rewinds={run.config.health.max_rewinds} were made"
        elif back_to is None:
            refusal = "no checkpoint from before the spike is left"
        if refusal or back_to is None:
            self.recorder.event(f"not going back: {refusal}", level="warning")
            return False
        skipped = range(self._cursors[spike.first_step], self._cursors[spike.last_step] + 1)
        rewind = Rewind(spike.last_step, step_of(back_to) or 0, skipped.start, skipped.stop, cause)
        if dist.get_rank() == 0:
            write_rewinds(run.folder, self._rewinds.with_one_more(rewind))
            discard_newer(run.checkpoints, rewind.to_step)
        record_rewind(self.recorder, rewind)
        return True

    def fail(self) -> NoReturn:
        """Record the checkpoint that the next start goes back to, and raise a UserError with the command to resume."""
        run, last_step = self._context.run, self.state.step
        self.checkpoints.wait()

        def look() -> tuple[str, events.Diverged]:
            steps = replayed(read_journal(run.journal)).surviving_steps()
            first = first_skipped_step(steps, last_step)
            rising = first_high_loss_step(steps, first, run.config.health)
            back_to = last_good_step(run.checkpoints, rising)
            text = f"training diverged: {self._what_is_not_finite(first)}"
            if losses := losses_text(steps, first, rising):
                text += f" (loss {losses})"
            text += f": {resume_command(run.config, run.folder, back_to, len(step_folders(run.checkpoints)))}"
            return text, events.Diverged(first_step=first, last_step=last_step, back_to=back_to)

        text, diverged = agreed(look)
        self.recorder.event(text, diverged, "warning")
        raise UserError(text)

    def _what_is_not_finite(self, first_step: int) -> str:
        state = self.state
        if not state.skipped:
            return f"validation is not finite after step {state.step}"
        return (
            f"the {state.skipped[-1].not_finite} was not finite in {state.step - first_step + 1} steps in a row, "
            f"{first_step} to {state.step}, which did not change the weights"
        )

    def finish(self) -> None:
        """Evaluate the trained model, and write `model/` and `result.json`. Collective.

        Raises UserError in every worker when a block is damaged.
        """
        context, watchdog = self._context, self._context.watchdog
        watchdog.at(self.state.step - 1, "evaluate")
        with self.recorder.span("evaluation_s"):
            result = self._write_model()
        self.recorder.end(f"trained to step {self.state.step}", events.Ended(step=self.state.step))
        if dist.get_rank() == 0:
            write_document(context.run.folder / PretrainFiles.RESULT, result)
        dist.barrier()

    def _write_model(self) -> dict[str, Any]:
        """Evaluate and write `model/`; return the content of `result.json`."""
        run, state = self._context.run, self.state
        evaluator, tick = self._context.evaluator, self._context.watchdog.tick
        evaluation = evaluator.final(self.engine.module)
        masters = self.engine.masters()
        tick()

        def count_and_write(part_done: Any) -> dict[str, Any]:
            counted_steps = min(state.cursor, -(-_MAX_COUNTED_TOKENS // run.config.tokens_per_step))
            baselines = evaluator.baselines(self._reader, counted_steps, part_done)
            tokenizer = run.prep_folder / "tokenizer.json"
            module = self.engine.module
            save_model(
                module, run.folder / PretrainFiles.MODEL, tokenizer, masters, run.config.segment_tokens
            )
            part_done()
            return {
                "num_parameters": sum(master.numel() for master in masters.values()),
                "num_steps": state.step,
                "tokens_seen": state.step * run.config.tokens_per_step,
                "validation": evaluation.to_json() | baselines.to_json(),
                "world_size": dist.get_world_size(),
                "zero_stage": run.config.zero_stage,
                "backend": dist.get_backend(),
            }

        return agreed_in_parts(count_and_write, tick)

    def close(self) -> None:
        """Stop reading ahead, and release the engine."""
        self._feed.close()
        super().close()


def _fresh_model(context: RunContext) -> TwoStreamTransformer:
    run, config = context.run, context.run.config
    torch.manual_seed(key_seed(run.seed, "initialisation"))
    model = TwoStreamTransformer(config.model, context.corpus.tokenizer.vocab_size).to(context.device)
    model.recompute = config.recompute
    if config.compile:
        model.compile()
    return model


def _static_files(context: RunContext, model: TwoStreamTransformer) -> StaticFiles:
    description = ModelDescription.of(model, context.run.config.segment_tokens)
    tokenizer = (context.run.prep_folder / "tokenizer.json").read_bytes()
    return StaticFiles.of_pretraining(context.identity, description, tokenizer)
