"""Commits of a fit: weights, moments and what training has come to, by the same writer as pretraining's."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch.distributed as dist

from cluster.errors import UserError
from cluster.journal import Journal, Level
from finetune.training.best import Best
from finetune.training.config import FitConfig
from finetune.training.state import FitState
from pretrain.agreement import agreed
from pretrain.checkpoint.finding import Damaged, newest_valid, remove_unfinished
from pretrain.checkpoint.reading import open_commit
from pretrain.checkpoint.snapshot import Snapshot, StaticFiles
from pretrain.checkpoint.writer import CommitWriter
from pretrain.config import CheckpointConfig
from pretrain.engine.module_engine import ModuleEngine

_KEEP = 2


class FitSaver:
    """Finds the commit to go on from and writes new ones; collective but for the writing."""

    def __init__(self, folder: Path, config: FitConfig, journal: Journal | None, token: str) -> None:
        """`token` is one that no other attempt had, the same on all workers."""
        self._checkpoints = folder / "checkpoints"
        self._config, self._journal, self._token = config, journal, token
        self._saved_step: int | None = None
        self._writer: CommitWriter | None = None

    def resume(self, engine: ModuleEngine, state: FitState) -> None:
        """Put the newest valid commit into engine and state, if there is one; say so in the journal.

        Raises UserError when there are commits and none is valid.
        """
        commit = agreed(self._newest_commit)
        if commit is not None:
            stored = open_commit(commit)
            engine.restore(stored)
            _take_up(state, stored.step, stored.state)
            self._tell(f"resuming from {commit.name}", "info", "start", {"step": state.step})
        else:
            self._tell("starting at step 0", "info", "start", {"step": 0})
        self._saved_step = state.step if commit else None
        keep = CheckpointConfig(every_steps=self._config.evaluate_every_steps, keep=_KEEP, keep_best=False)
        self._writer = CommitWriter(
            self._checkpoints,
            dist.get_rank(),
            dist.get_world_size(),
            keep,
            self._tell,
            resumed_step=self._saved_step,
            steps_are_recorded=self._journal.sync if self._journal else lambda: True,
        )

    def save(self, engine: ModuleEngine, state: FitState) -> None:
        """Begin a commit of the state as it is, unless this step has one."""
        assert self._writer
        if state.step == self._saved_step:
            return
        self._saved_step = state.step
        snapshot = Snapshot(
            step=state.step,
            cursor=state.step,
            pieces=engine.pieces(),
            memory=None,
            first_lane=0,
            state=_remembered(state),
        )
        static = StaticFiles({}) if dist.get_rank() == 0 else None
        self._writer.begin(snapshot, self._token, static, "cadence")

    def wait(self, state: FitState) -> None:
        """Until the last commit is on disk. Raises UserError when it could not be written."""
        writer = self._writer
        assert writer
        writer.wait()
        if not agreed(lambda: state.step in (0, writer.newest_step)):
            raise UserError(
                f"the checkpoint of step {state.step} could not be written to {self._checkpoints}: mend the disk and "
                "give the same command again"
            )

    def _newest_commit(self) -> Path | None:
        remove_unfinished(self._checkpoints)
        return newest_valid(self._checkpoints, self._tell_damaged)

    def _tell_damaged(self, damaged: Damaged) -> None:
        self._tell(str(damaged), "warning", "damaged", {"commit": damaged.commit})

    def _tell(self, text: str, level: Level, name: str, facts: dict[str, Any]) -> None:
        if self._journal is not None:
            self._journal.event(text, level, name, **facts)


def _remembered(state: FitState) -> dict[str, Any]:
    return {
        "best": asdict(state.best) if state.best else None,
        "evaluations_since_best": state.evaluations_since_better,
        "skipped_in_a_row": state.skipped_in_a_row,
    }


def _take_up(state: FitState, step: int, stored: Mapping[str, Any]) -> None:
    state.step = step
    state.best = Best(**stored["best"]) if stored["best"] else None
    state.evaluations_since_better = stored["evaluations_since_best"]
    state.skipped_in_a_row = stored["skipped_in_a_row"]
