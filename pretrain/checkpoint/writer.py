"""Checkpoints written in the background: the step loop waits only for the copy of its state."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from cluster.errors import UserError, first_line
from cluster.fault_points import fault_point
from cluster.journal import Level
from pretrain.checkpoint.listing import step_folders, step_name, step_of
from pretrain.checkpoint.rank_files import (
    RankFiles,
    SaveError,
    abandon,
    gather_parts,
    publish,
    temporary_folder,
)
from pretrain.checkpoint.retention import remove_checkpoint, superseded_checkpoints
from pretrain.checkpoint.snapshot import Snapshot, StaticFiles
from pretrain.config import CheckpointConfig
from pretrain.journal.events import (
    CheckpointFailed,
    CheckpointKept,
    CheckpointWaited,
    CheckpointWritten,
    Event,
)

OnEvent = Callable[[str, Event, Level], None]
"""Called with an event for the journal, from a thread of rank 0."""

_PART_TIMEOUT_S = 1800.0
_ON_WAIT_EVERY_S = 1.0
LONG_WAIT_S = 1.0
"""A wait for the previous checkpoint that is worth a warning."""
_OTHERS_TIMEOUT_S = 10.0
"""How long rank 0 waits for the others' files when its own failed and there will be no checkpoint."""


@dataclass(frozen=True)
class _Save:
    """A checkpoint that is being written, as this rank sees it."""

    snapshot: Snapshot
    static: StaticFiles | None
    reason: str
    temporary: Path
    final: Path
    stall_s: float
    began_s: float
    """The time on the monotonic clock."""


class CheckpointWriter:
    """Writes this rank's part of every checkpoint in one background thread; rank 0 completes the checkpoint.

    A disk that fails (full, gone, slow) is reported as an event; training continues and earlier checkpoints remain.
    Ranks communicate through files alone, so no collective runs beside the step loop.
    """

    def __init__(
        self,
        checkpoints: Path,
        rank: int,
        world_size: int,
        keep: CheckpointConfig,
        on_event: OnEvent,
        *,
        resumed_step: int | None = None,
        part_timeout_s: float = _PART_TIMEOUT_S,
        steps_are_recorded: Callable[[], bool] = lambda: True,
        on_wait: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare the writer.

        `resumed_step` is the step of the checkpoint the run resumes from: newer ones in the folder are damaged.
        `steps_are_recorded`, called in rank 0's thread, syncs the journal; where it returns False, no checkpoint is
        written. `on_wait` is called every second in which a caller waits here, but no longer than a checkpoint may
        take: behind a disk that never answers a caller hangs.
        """
        self._checkpoints = checkpoints
        self._rank, self._world_size = rank, world_size
        self._keep, self._on_event = keep, on_event
        self._part_timeout_s = part_timeout_s
        self._steps_are_recorded, self._on_wait = steps_are_recorded, on_wait
        self.newest_step = resumed_step
        """The step of the newest complete checkpoint; only rank 0 knows of those written here."""
        self._valid_steps: set[int] = set()
        self._damaged_steps: set[int] = set()
        if resumed_step is not None:
            self._valid_steps.add(resumed_step)
            steps = {step_of(folder) or 0 for folder in step_folders(checkpoints)}
            self._damaged_steps = {step for step in steps if step > resumed_step}
        self._abandoned: list[Path] = []
        """Folders of failed checkpoints, into which a late rank may have written since."""
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def begin(
        self, snapshot: Snapshot, token: str, static: StaticFiles | None, reason: str, copy_s: float = 0.0
    ) -> float:
        """Start writing a checkpoint and return the seconds waited for the previous one.

        Every rank calls it for the same step with the same `token`, which no other attempt of this run has; rank 0
        gives the `static` files. `reason` ("cadence", "stop", "end") goes into the event "checkpoint". `copy_s`, the
        time that the step loop waited for the copy, is counted in the event's stall.
        """
        fault_point("checkpoint.begun")
        began_s = time.monotonic()
        self.wait()
        waited_s = time.monotonic() - began_s
        if waited_s >= LONG_WAIT_S and self._rank == 0:
            self._report_wait(snapshot.step, waited_s)
        if snapshot.memory is not None:
            snapshot = replace(snapshot, memory=snapshot.memory.to(torch.device("cpu")))
        stall_s = copy_s + time.monotonic() - began_s
        temporary = temporary_folder(self._checkpoints, snapshot.step, token)
        final = self._checkpoints / step_name(snapshot.step)
        save = _Save(snapshot, static, reason, temporary, final, stall_s, time.monotonic())
        self._thread = threading.Thread(target=self._run, args=(save,), name="checkpoint", daemon=True)
        self._thread.start()
        return waited_s

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing is being written any more; return False when that takes longer than `timeout_s`.

        On rank 0 the checkpoint is then complete (see `newest_step`), or an event says why it is not.
        """
        if self._thread is not None and not self._ends_within(self._thread, timeout_s):
            return False
        self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return True

    def _ends_within(self, thread: threading.Thread, timeout_s: float | None) -> bool:
        began_s = time.monotonic()
        while thread.is_alive():
            waited_s = time.monotonic() - began_s
            left_s = _ON_WAIT_EVERY_S if timeout_s is None else timeout_s - waited_s
            if left_s <= 0:
                return False
            if waited_s < 2 * self._part_timeout_s:
                self._on_wait()
            thread.join(min(left_s, _ON_WAIT_EVERY_S))
        return True

    def _run(self, save: _Save) -> None:
        """Run in the thread. An error that is not the disk's is kept, and raised by the next `wait`."""
        try:
            problem = self._write_own(save)
            if self._rank == 0:
                self._complete_checkpoint(save, problem)
        except Exception as error:
            self._error = error

    def _write_own(self, save: _Save) -> str | None:
        """Write this rank's files. Return what went wrong, which is reported to rank 0 as well."""
        files = RankFiles(save.temporary, self._rank)
        try:
            files.write(save.snapshot, save.static)
        except (OSError, UserError) as error:
            files.report_failure(first_line(error))
            return first_line(error)
        except Exception as error:
            files.report_failure(first_line(error))
            raise
        return None

    def _complete_checkpoint(self, save: _Save, own_problem: str | None) -> None:
        step = save.snapshot.step
        try:
            timeout_s = _OTHERS_TIMEOUT_S if own_problem else self._part_timeout_s
            files = gather_parts(save.temporary, self._world_size, timeout_s, own_problem)
            if save.final.exists() and step in self._valid_steps:
                abandon(save.temporary)  # the same state again, as at the end of a run that has just saved
                return
            if not self._steps_are_recorded():
                raise SaveError("its steps cannot be recorded in the journal")
            listing = publish(save.temporary, save.final, step, files, self._world_size)
        except (OSError, UserError, SaveError) as error:
            abandon(save.temporary)
            self._abandoned.append(save.temporary)
            self._report_failure(save, first_line(error))
            return
        self.newest_step = step
        self._valid_steps.add(step)
        self._damaged_steps.discard(step)
        self._report_checkpoint(save, listing.size_bytes)
        self._drop_old(step)

    def _report_checkpoint(self, save: _Save, size_bytes: int) -> None:
        write_s = time.monotonic() - save.began_s
        self._on_event(
            f"checkpoint {save.final.name}: {size_bytes / 1e6:.1f} MB written in {write_s:.1f} s",
            CheckpointWritten(
                step=save.snapshot.step,
                cursor=save.snapshot.cursor,
                stall_s=save.stall_s,
                write_s=write_s,
                bytes=size_bytes,
                reason=save.reason,
            ),
            "info",
        )

    def _report_failure(self, save: _Save, problem: str) -> None:
        self._on_event(
            f"checkpoint {save.final.name} could not be written ({problem}): training continues, earlier "
            "checkpoints remain, the next one is written when it is due",
            CheckpointFailed(step=save.snapshot.step, cursor=save.snapshot.cursor, problem=problem),
            "warning",
        )

    def _report_wait(self, step: int, waited_s: float) -> None:
        self._on_event(
            f"step {step} waited {waited_s:.1f} s for the checkpoint before it to be written: raise "
            "checkpoint.every_steps or use a faster disk",
            CheckpointWaited(step=step, waited_s=waited_s),
            "warning",
        )

    def _drop_old(self, newest_step: int) -> None:
        while self._abandoned:
            abandon(self._abandoned.pop())
        damaged = frozenset(self._damaged_steps)
        for folder in superseded_checkpoints(self._checkpoints, self._keep, newest_step, damaged):
            try:
                remove_checkpoint(folder)
            except OSError as error:
                self._on_event(
                    f"checkpoint {folder.name} could not be removed ({first_line(error)}): remove it by hand",
                    CheckpointKept(step=step_of(folder), problem=first_line(error)),
                    "warning",
                )
