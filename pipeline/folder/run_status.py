"""What the command of a run is doing, and whether it lives, as any machine that sees the storage can tell."""

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from cluster.errors import UserError
from cluster.journal import JOURNAL_NAME, read_journal
from cluster.lease import LeaseSight, look_at_lease
from cluster.reporter import count_text
from cluster.run_state import RunState, read_state

CommandState = Literal["running", "waiting", "finished", "interrupted", "failed", "dead"]


@dataclass(frozen=True)
class RunStatus:
    """The newest command in a run's folder. Its lease shows whether it is alive, without comparing clocks."""

    state: CommandState
    lease: LeaseSight
    command: RunState
    tokens_per_s: float | None
    """The speed at the newest step of the stage, None where it makes no steps."""

    def to_json(self) -> dict[str, Any]:
        """Return all facts."""
        return asdict(self)

    def lines(self) -> list[tuple[str, str]]:
        """Return labels and texts for the terminal."""
        lines = [("command", f"{self._state_text()}{self._where()}")]
        command = self.command
        if command.stage:
            attempt = f", attempt {command.attempt}" if command.attempt is not None else ""
            workers = f" with {command.num_workers} workers" if command.num_workers else ""
            lines.append(("stage", f"{command.stage}{attempt}{workers}"))
        if command.waiting_for and self.lease.is_alive:
            lines.append(("waiting for", command.waiting_for))
        if command.progress is not None:
            lines.append(("progress", self._progress_text()))
        if command.lost_nodes:
            lines.append(("lost nodes", ", ".join(command.lost_nodes)))
        return lines

    def _state_text(self) -> str:
        if self.state == "dead":
            return "DEAD"
        return f"failed ({self.command.ended})" if self.state == "failed" else self.state

    def _where(self) -> str:
        lease = self.lease
        job = f", job {self.command.job}" if self.command.job else ""
        where = f": process {lease.pid} on {lease.host}{job}"
        if lease.state == "silent":
            return f"{where}; its lease was not renewed in {lease.watched_s:.0f} s, and should be every 3 s"
        if lease.state == "gone":
            return f"{where}; the process has ended and left its lease"
        if lease.state == "held" and not lease.is_here:
            return f"{where}; its lease was renewed while this command watched"
        return where

    def _progress_text(self) -> str:
        assert self.command.progress is not None
        progress = self.command.progress
        share = f" ({progress.done / progress.total:.1%})" if progress.total > 0 else ""
        text = f"{progress.label}: {count_text(progress.done)} of {count_text(progress.total)} {progress.unit}{share}"
        if self.tokens_per_s is not None:
            text += f", {count_text(self.tokens_per_s)} tokens/s"
        return f"{text}, {progress.note}" if progress.note else text


def read_run_status(out: Path) -> RunStatus | None:
    """Return the status of the newest command in `out`; None where no version with leases worked.

    Watches a lease of another machine for up to 9 s, until it is renewed. Raises UserError for a damaged file.
    """
    lease = look_at_lease(out)
    if lease is None:
        return None
    command = read_state(out) or RunState()
    return RunStatus(_state(lease, command), lease, command, _newest_speed(out, command.stage))


def _state(lease: LeaseSight, command: RunState) -> CommandState:
    match lease.state:
        case "held":
            return "waiting" if command.waiting_for else "running"
        case "released":
            if command.ended in ("finished", ""):
                return "finished"
            return "interrupted" if command.ended == "interrupted" else "failed"
        case _:
            return "dead"


def _newest_speed(out: Path, stage: str) -> float | None:
    """Return the tokens per second of the newest step in the newest journal of the stage."""
    journals = [*out.glob(f"{stage}-*/**/{JOURNAL_NAME}")] if stage else []
    with suppress(OSError, UserError, ValueError):
        newest = max(journals, key=lambda path: path.stat().st_mtime_ns)
        for record in reversed(read_journal(newest)):
            if record.kind == "step":
                return record.metrics.get("tokens_per_s")
    return None
