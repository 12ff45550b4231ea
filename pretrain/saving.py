"""What of a worker's state goes into a commit, handed to the writer's thread."""

import time
from typing import Any

import torch.distributed as dist

from cluster.journal import Level
from pretrain.checkpoint.compatibility import RunIdentity
from pretrain.checkpoint.snapshot import Snapshot, StaticFiles
from pretrain.checkpoint.writer import CommitWriter
from pretrain.health.watchdog import Watchdog
from pretrain.recorder import Recorder
from pretrain.run import Run
from pretrain.step import TrainState
from pretrain.weights import ModelDescription


class Saver:
    """Copies a worker's state and has it written; the step loop waits for the copy only."""

    def __init__(
        self,
        run: Run,
        identity: RunIdentity,
        state: TrainState,
        token: str,
        recorder: Recorder,
        watchdog: Watchdog,
    ) -> None:
        """`token` is one that no other attempt at the run had; the same on all workers."""
        self._token, self._recorder = token, recorder
        self._every_steps = run.config.checkpoint.every_steps
        self._static = _static_files(run, identity, state) if dist.get_rank() == 0 else None
        self._saved_step = self._resumed_step = state.step
        self._writer = CommitWriter(
            run.checkpoints,
            dist.get_rank(),
            dist.get_world_size(),
            run.config.checkpoint,
            self._tell,
            resumed_step=state.step or None,
            steps_are_recorded=recorder.sync,
            # The writer gives up by itself when a part does not come, so waiting for it is no hang.
            on_wait=lambda: watchdog.at(self._saved_step - 1, "save"),
        )

    def is_due(self, step: int) -> bool:
        """Whether the run's cadence has asked for a commit since the last one, up to `step`."""
        return step // self._every_steps > self._saved_step // self._every_steps

    def save(self, state: TrainState, reason: str, bits_per_byte: float | None = None) -> None:
        """Begin the commit of the state as it is now; every worker must call it, and none waits for another.

        But for the commit before, if that is still being written.
        """
        if state.step == self._saved_step:
            return
        self._saved_step = state.step
        with self._recorder.span("save_s"):
            started_s = time.perf_counter()
            snapshot = Snapshot(
                step=state.step,
                cursor=state.cursor,
                pieces=state.engine.pieces(),
                # A step makes new memory and leaves the old one as it is, so this needs no copy.
                memory=state.memory,
                first_lane=state.lanes.start,
                state=_remembered(state, bits_per_byte),
            )
            copy_s = time.perf_counter() - started_s
            self._writer.begin(snapshot, self._token, self._static, reason, copy_s)

    def wait(self) -> None:
        """Until what was begun is on disk or given up."""
        with self._recorder.span("save_s"):
            self._writer.wait()

    def is_committed(self, step: int) -> bool:
        """Whether the state after `step` is on disk; what the first worker knows, all others must ask it."""
        return step in (self._resumed_step, self._writer.newest_step)

    def _tell(self, text: str, level: Level, name: str, facts: dict[str, Any]) -> None:
        self._recorder.event(text, level, name, **facts)


def _static_files(run: Run, identity: RunIdentity, state: TrainState) -> StaticFiles:
    description = ModelDescription.of(state.engine.module, run.config.segment_tokens)
    return StaticFiles.of_pretraining(
        identity, description, (run.prep_folder / "tokenizer.json").read_bytes()
    )


def _remembered(state: TrainState, bits_per_byte: float | None) -> dict[str, Any]:
    """What a resumed run must remember of what it has seen; JSON."""
    remembered: dict[str, Any] = {
        "spikes": state.spikes.to_json(),
        "cursors": list(state.cursors.items()),
        "rewinds_seen": len(state.rewinds),
    }
    if bits_per_byte is not None:
        remembered["validation_bits_per_byte"] = bits_per_byte
    return remembered
