"""A watchdog per worker: without progress it names the worker that hangs, writes all stacks and ends the worker.

A thread of every worker writes its progress to `progress/rank-00000.json`. A worker without progress for
`hang_timeout_s` writes the stacks of its threads to `hang/rank-00000.txt`, and the first one to notice writes to
`hang.json` which worker is furthest behind: the others wait for it in a collective. A frozen process writes nothing
any more, and so is furthest behind, too.
"""

import faulthandler
import json
import os
import re
import socket
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster.errors import UserError
from cluster.storage import read_document, read_json, write_document
from pretrain.files import PretrainFiles

EXIT_HANGING = 75
"""EX_TEMPFAIL: the same command may succeed when it is run again."""

_PHASES = ("start", "read", "forward", "backward", "exchange", "evaluate", "save")
"""The phases in the order of a step; forward and backward come once for every micro-batch."""
_OF_MICRO_BATCHES = ("forward", "backward")
_LEAST_INTERVAL_S, _MOST_INTERVAL_S = 0.05, 5.0
_MOST_WRITES_PER_S = 50.0
"""Of all workers together: from 250 workers on, each writes less often."""
_PROGRESS_NAME = re.compile(r"rank-(\d{5,})\.json")
_CLAIM = "verdict"
"""The file in `hang/` of the worker that writes the verdict; the others do not read all progress as well."""


@dataclass(frozen=True)
class Progress:
    """A worker's last written progress."""

    rank: int
    step: int
    phase: str
    micro_batch: int
    """The number of the micro-batch; in other phases the number of finished parts."""
    host: str
    pid: int
    written_s: float
    """Seconds since the epoch."""

    def sort_key(self) -> tuple[int, int, int, int]:
        """Return a key that grows with progress; phases after a step count as the step's."""
        phase = _PHASES.index(self.phase)
        part = _PHASES.index(_OF_MICRO_BATCHES[0]) if self.phase in _OF_MICRO_BATCHES else phase
        return self.step, part, self.micro_batch, phase


def take_hang_report(folder: Path) -> str | None:
    """Return the report of an earlier attempt that hung, and remove it; None if there is none."""
    path = folder / PretrainFiles.HANG
    if not path.exists():
        return None
    text: str = read_document(path)["text"]
    path.unlink()
    return text


def write_interval_s(world_size: int, hang_timeout_s: float) -> float:
    """Return how often a worker writes its progress: 8 times in the timeout, but not too often for all together."""
    wanted_s = min(max(_MOST_INTERVAL_S, world_size / _MOST_WRITES_PER_S), hang_timeout_s / 8)
    return max(_LEAST_INTERVAL_S, wanted_s)


class Watchdog:
    """Watches the worker that makes it; `at` or `tick` is called at each progress."""

    def __init__(self, folder: Path, rank: int, world_size: int, hang_timeout_s: float) -> None:
        self._folder, self._rank, self._world_size = folder, rank, world_size
        self._hang_timeout_s = hang_timeout_s
        self.interval_s = write_interval_s(world_size, hang_timeout_s)
        self._place = (0, "start", 0)
        self._since_s = time.monotonic()
        self._ended = threading.Event()
        (folder / "progress").mkdir(parents=True, exist_ok=True)
        self._progress_path(rank).unlink(missing_ok=True)  # of an earlier attempt
        if rank == 0:
            with suppress(OSError):
                (folder / "hang" / _CLAIM).unlink(missing_ok=True)
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> "Watchdog":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def at(self, step: int, phase: str, micro_batch: int = 0) -> None:
        """Note that the worker has reached `phase` of `step`."""
        self._place, self._since_s = (step, phase, micro_batch), time.monotonic()

    def tick(self) -> None:
        """Note that the worker has done one more part of its phase."""
        step, phase, part = self._place
        self.at(step, phase, part + 1)

    def _watch(self) -> None:
        # Each worker has its own moment in the interval, so the writes come one after the other.
        if self._ended.wait(self.interval_s * self._rank / self._world_size):
            return
        while not self._ended.wait(self.interval_s):
            self.write_progress()
            if time.monotonic() - self._since_s > self._hang_timeout_s:
                self._end_hanging_worker()

    def write_progress(self) -> None:
        """Write where this worker is; its thread does that at intervals."""
        progress = Progress(self._rank, *self._place, socket.gethostname(), os.getpid(), time.time())
        path = self._progress_path(self._rank)
        temporary = path.with_suffix(".tmp")
        try:
            temporary.write_text(json.dumps(asdict(progress)))
            temporary.replace(path)
        except OSError:  # a full disk must not end a run
            return

    def _end_hanging_worker(self) -> None:
        try:
            with suppress(OSError):
                stacks = self._folder / "hang" / f"rank-{self._rank:05d}.txt"
                stacks.parent.mkdir(exist_ok=True)
                with stacks.open("w") as file:
                    faulthandler.dump_traceback(file)
            with suppress(OSError, UserError):
                if self._is_first_to_notice():
                    write_document(self._folder / PretrainFiles.HANG, {"text": self.verdict()})
            # The other workers notice a moment later; they need time to write their stacks before this one ends.
            time.sleep(2 * self.interval_s)
        finally:
            os._exit(EXIT_HANGING)

    def _is_first_to_notice(self) -> bool:
        if (self._folder / PretrainFiles.HANG).exists():
            return False
        try:
            (self._folder / "hang" / _CLAIM).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def verdict(self) -> str:
        """Return which worker hangs: a silent one, or else the one that is furthest behind."""
        known = [progress for rank in self._listed_ranks() if (progress := self._read_progress(rank))]
        if not known:
            return f"no worker made progress for {self._hang_timeout_s:g} s; which one hangs is not known"
        last = min(known, key=lambda progress: (not self._is_silent(progress), progress.sort_key()))
        frozen = f", silent for {time.time() - last.written_s:.0f} s" if self._is_silent(last) else ""
        return (
            f"worker {last.rank} (process {last.pid} on {last.host}) hangs at step {last.step + 1} "
            f"({last.phase}{frozen}): no worker made progress for {self._hang_timeout_s:g} s; "
            f"stacks of all workers are in {self._folder / 'hang'}"
        )

    def _is_silent(self, progress: Progress) -> bool:
        """Return whether the worker is frozen: otherwise its own watchdog would have written since."""
        return time.time() - progress.written_s > 3 * self.interval_s

    def _listed_ranks(self) -> list[int]:
        """Return the ranks of this attempt that have written progress; an earlier one may have had more."""
        names = os.listdir(self._folder / "progress")
        ranks = (int(matched[1]) for name in names if (matched := _PROGRESS_NAME.fullmatch(name)))
        return sorted(rank for rank in ranks if rank < self._world_size)

    def _read_progress(self, rank: int) -> Progress | None:
        try:
            return Progress(**read_json(self._progress_path(rank)))
        except (OSError, UserError, TypeError):
            return None

    def _progress_path(self, rank: int) -> Path:
        return self._folder / "progress" / f"rank-{rank:05d}.json"
