"""The checkpoints of one training: which to resume from, when the next is due, and writing it in the background."""

import secrets
import time
from collections.abc import Callable
from pathlib import Path

import torch.distributed as dist

from cluster.errors import UserError
from pretrain.agreement import agreed
from pretrain.checkpoint.finding import newest_valid_of_all
from pretrain.checkpoint.snapshot import Snapshot, StaticFiles
from pretrain.checkpoint.verify import Damaged
from pretrain.checkpoint.writer import CheckpointWriter
from pretrain.config import CheckpointConfig
from pretrain.journal import events
from pretrain.journal.recorder import Recorder


class CheckpointManager:
    """Writes a training's checkpoints; collective but for the writing. The step loop waits for the copy only."""

    def __init__(
        self,
        folder: Path,
        config: CheckpointConfig,
        recorder: Recorder,
        resumed_step: int | None,
        static: StaticFiles,
        on_wait: Callable[[int], None] = lambda step: None,
    ) -> None:
        """Start the writer.

        `resumed_step` is the step of the checkpoint that the training resumed from, `static` the files that are the
        same in every checkpoint. `on_wait` is called every second of a wait with the step of the checkpoint in work.
        """
        self._folder, self._recorder, self._static = folder, recorder, static
        self._every_steps = config.every_steps
        self._saved_step, self._resumed_step = resumed_step or 0, resumed_step
        # The token in the names of this start's temporary folders: no process of an earlier start writes there.
        self._token = agreed(lambda: secrets.token_hex(4))
        self._writer = CheckpointWriter(
            folder,
            dist.get_rank(),
            dist.get_world_size(),
            config,
            recorder.event,
            resumed_step=resumed_step,
            steps_are_recorded=recorder.sync,
            # The writer has a timeout of its own, so waiting for it is no hang.
            on_wait=lambda: on_wait(self._saved_step),
        )

    def is_due(self, step: int) -> bool:
        """Return whether a checkpoint has become due since the last one, up to `step`."""
        return step // self._every_steps > self._saved_step // self._every_steps

    def save(self, step: int, snapshot: Callable[[], Snapshot], reason: str) -> None:
        """Begin to write the state after `step`; waits for the checkpoint before it, but not for other workers.

        `reason` ("cadence", "stop", "end") goes into the journal. Does nothing when this step has a checkpoint.
        """
        if step == self._saved_step:
            return
        self._saved_step = step
        with self._recorder.span("save_s"):
            started_s = time.perf_counter()
            copied = snapshot()
            copy_s = time.perf_counter() - started_s
            static = self._static if dist.get_rank() == 0 else None
            self._writer.begin(copied, self._token, static, reason, copy_s)

    def wait(self) -> None:
        """Wait until the checkpoint in work is on disk or has failed."""
        with self._recorder.span("save_s"):
            self._writer.wait()

    def wait_for(self, step: int) -> None:
        """Wait until the state after `step` is on disk. Raises UserError when it could not be written."""
        self.wait()
        if not agreed(lambda: step in (0, self._resumed_step, self._writer.newest_step)):
            raise UserError(
                f"the checkpoint of step {step} could not be written to {self._folder} (the journal says why): fix "
                "the disk and give the same command again, which resumes from the checkpoint before it"
            )


def newest_checkpoint(folder: Path, recorder: Recorder, up_to_step: int | None = None) -> Path | None:
    """Return the checkpoint to resume from, None before the first; damaged ones are recorded and skipped.

    Collective: the workers divide the hashing. Raises UserError when there are checkpoints and none is valid.
    """

    def record(damaged: Damaged) -> None:
        event = events.Damaged(checkpoint=damaged.checkpoint, problem=damaged.problem)
        recorder.event(str(damaged), event, "warning")

    return newest_valid_of_all(folder, record, up_to_step)
