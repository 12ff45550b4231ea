"""The checkpoints of one training: which to resume from, when the next is due, and writing it in the background."""

import secrets
import time
from collections.abc import Callable
from pathlib import Path

import torch.distributed as dist

from cluster.errors import UserError
from pretrain.agreement import agreed
from pretrain.checkpoint.finding import Damaged, newest_valid
from pretrain.checkpoint.snapshot import Snapshot, StaticFiles
from pretrain.checkpoint.writer import CommitWriter
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
        """`resumed_step` is that of the checkpoint which was resumed from, `static` what every checkpoint holds alike.

        `on_wait` is called now and then with the step whose checkpoint is waited for.
        """
        self._folder, self._recorder, self._static = folder, recorder, static
        self._every_steps = config.every_steps
        self._saved_step, self._resumed_step = resumed_step or 0, resumed_step
        # Names the temporary folders of this start's checkpoints: no process of an earlier one writes there.
        self._token = agreed(lambda: secrets.token_hex(4))
        self._writer = CommitWriter(
            folder,
            dist.get_rank(),
            dist.get_world_size(),
            config,
            recorder.event,
            resumed_step=resumed_step,
            steps_are_recorded=recorder.sync,
            # The writer gives up by itself when a part does not come, so waiting for it is no hang.
            on_wait=lambda: on_wait(self._saved_step),
        )

    def is_due(self, step: int) -> bool:
        """Whether one has become due since the last, up to `step`."""
        return step // self._every_steps > self._saved_step // self._every_steps

    def save(self, step: int, snapshot: Callable[[], Snapshot], reason: str) -> None:
        """Begin to write the state after `step`; no worker waits for another, but for the checkpoint before this one.

        `reason` ("cadence", "stop", "end") goes into the journal. Does nothing where this step has a checkpoint.
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
        """Wait until what was begun is on disk or given up."""
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
    """The checkpoint to resume from, None before the first; damaged ones are recorded and passed over.

    For one worker. Raises UserError when there are some and none is valid.
    """

    def record(damaged: Damaged) -> None:
        event = events.Damaged(commit=damaged.commit, problem=damaged.problem)
        recorder.event(str(damaged), event, "warning")

    return newest_valid(folder, record, up_to_step)
