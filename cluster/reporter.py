"""All output to the user: progress bars on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from cluster import run_state, structured_log

PLAIN_INTERVAL_S = 5.0


class Bar(Protocol):
    """The progress of one piece of work."""

    def advance(self, amount: float = 1) -> None:
        """Advance by `amount` units."""

    def update(self, done: float, note: str = "") -> None:
        """Set the position to `done` units; `note`, such as "loss 3.21", is shown after it."""


class Reporter:
    """Prints lines, warnings and progress; lines and warnings are also appended to `log_path` where possible."""

    def __init__(self, log_path: Path | None = None, console: Console | None = None) -> None:
        self.console = console or Console()
        self._log_path = log_path
        self._progress: Progress | None = None
        self._num_bars = 0

    def line(self, text: str) -> None:
        """Print a line."""
        self._print(text, style="")
        structured_log.event(text)

    def warn(self, text: str) -> None:
        """Print a warning: something that the user should know or act on."""
        self._print(f"warning: {text}", style="yellow")
        structured_log.event(text, "warning")

    @contextmanager
    def bar(self, label: str, total: float, unit: str) -> Iterator[Bar]:
        """Show the progress of the block; the last position is shown when it ends, even with an error."""
        if not self.console.is_terminal:
            plain = _PlainBar(self, label, total, unit)
            try:
                yield _NotedBar(plain, label, total, unit)
            finally:
                plain.end()
            return
        progress = self._start_progress()
        task = progress.add_task(label, total=total, unit=unit, note="")
        try:
            yield _NotedBar(_RichBar(progress, task), label, total, unit)
        finally:
            self._stop_progress()

    def _print(self, text: str, style: str) -> None:
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
        if self._log_path is not None:
            # A log that cannot be written, as on a full disk, must not hide the error that ends the run.
            with suppress(OSError):
                self._log_path.parent.mkdir(parents=True, exist_ok=True)
                with self._log_path.open("a", encoding="utf-8") as log:
                    log.write(f"{datetime.now().isoformat(timespec='seconds')} {text}\n")

    def _start_progress(self) -> Progress:
        """Return the display that all open bars share, started if it is not: a terminal has only one."""
        if self._progress is None:
            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                _CountColumn(),
                _RateColumn(),
                TimeRemainingColumn(compact=True),
                TextColumn("{task.fields[note]}", markup=False),
                console=self.console,
                refresh_per_second=4,
                speed_estimate_period=60,
            )
            self._progress.start()
        self._num_bars += 1
        return self._progress

    def _stop_progress(self) -> None:
        self._num_bars -= 1
        if self._num_bars == 0 and self._progress is not None:
            self._progress.stop()
            self._progress = None


class _NotedBar:
    """A bar whose progress is also noted in the run's state."""

    def __init__(self, shown: Bar, label: str, total: float, unit: str) -> None:
        self._shown, self._progress = shown, run_state.WorkProgress(label, 0.0, total, unit)

    def advance(self, amount: float = 1) -> None:
        self._shown.advance(amount)
        self._note(self._progress.done + amount, self._progress.note)

    def update(self, done: float, note: str = "") -> None:
        self._shown.update(done, note)
        self._note(done, note)

    def _note(self, done: float, note: str) -> None:
        self._progress = replace(self._progress, done=done, note=note)
        run_state.change(progress=self._progress)


class _RichBar:
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def advance(self, amount: float = 1) -> None:
        self._progress.advance(self._task, amount)

    def update(self, done: float, note: str = "") -> None:
        self._progress.update(self._task, completed=done, note=note)


class _PlainBar:
    """Prints a line at most every PLAIN_INTERVAL_S, and one at the end."""

    def __init__(self, reporter: Reporter, label: str, total: float, unit: str) -> None:
        self._reporter = reporter
        self._label = label
        self._total = total
        self._unit = unit
        self._done = 0.0
        self._note = ""
        self._start_s = self._printed_s = time.monotonic()
        self._first_done: float | None = None
        self._ended_s: float | None = None

    def advance(self, amount: float = 1) -> None:
        self.update(self._done + amount, self._note)

    def update(self, done: float, note: str = "") -> None:
        if self._first_done is None:
            # A resumed run's first position was not reached in this process and would distort the rate.
            self._first_done = done if done > 1 and done >= 0.02 * self._total else 0.0
            if done == 0 or self._first_done:
                self._start_s = time.monotonic()  # the work may have waited for other work before
        if done >= self._total and self._done < self._total:
            self._ended_s = time.monotonic()  # time after the last unit is spent on other work
        self._done = done
        self._note = note
        if time.monotonic() - self._printed_s >= PLAIN_INTERVAL_S:
            self._print_state()

    def end(self) -> None:
        self._print_state()

    def _print_state(self) -> None:
        self._printed_s = time.monotonic()
        elapsed_s = (self._ended_s or self._printed_s) - self._start_s
        rate = (self._done - (self._first_done or 0.0)) / max(elapsed_s, 1e-9)
        parts = [f"{self._label}: {count_text(self._done)}/{count_text(self._total)} {self._unit}"]
        if elapsed_s >= 1 and rate > 0:
            parts.append(rate_text(rate, self._unit))
            if self._done < self._total:
                parts.append(f"{duration_text((self._total - self._done) / rate)} left")
        if self._note:
            parts.append(self._note)
        self._reporter.line(", ".join(parts))


class _CountColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{count_text(task.completed)}/{count_text(task.total or 0)} {task.fields['unit']}")


class _RateColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        rate = task.finished_speed or task.speed
        return Text(rate_text(rate, task.fields["unit"]) if rate else "", style="cyan")


def count_text(value: float) -> str:
    """Return a count in few characters: 950, 12.3k, 4.56M."""
    for threshold, size, suffix in ((999.5e6, 1e9, "G"), (999.5e3, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= threshold:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.4g}"


def rate_text(rate: float, unit: str) -> str:
    """Return a rate per second, or in seconds per unit if it is below one per second."""
    if rate >= 1:
        return f"{count_text(float(f'{rate:.3g}'))} {unit}/s"
    return f"{1 / rate:.3g} s per {unit.removesuffix('s')}" if rate > 0 else f"0 {unit}/s"


def duration_text(seconds: float) -> str:
    """Return a duration in its two coarsest units: 45s, 2m05s, 3h10m."""
    total_s = round(seconds)
    if total_s < 60:
        return f"{total_s}s"
    if total_s < 3600:
        return f"{total_s // 60}m{total_s % 60:02d}s"
    return f"{total_s // 3600}h{total_s % 3600 // 60:02d}m"
