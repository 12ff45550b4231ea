"""How a group of workers learns its jobs: the command deals them, through a file in the group's folder."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path

from cluster.errors import UserError
from cluster.storage import read_document, write_document
from finetune.experiment.job import Job
from pretrain.agreement import agreed
from pretrain.health.stop import StopRequest

_NAME = ".jobs.json"
_LOOK_S = 0.2


@dataclass(frozen=True)
class Hand:
    """What was dealt to the group in one attempt."""

    attempt: int
    keys: tuple[str, ...]
    """The jobs by their keys, in the order in which they are done."""
    is_last: bool
    """Whether no more jobs follow, so that the workers end after these."""

    def write(self, folder: Path) -> None:
        """Tell the workers whose folder this is."""
        write_document(folder / _NAME, asdict(self))


def dealt_jobs(folder: Path, attempt: int, jobs: Sequence[Job], stop: StopRequest) -> Iterator[Job]:
    """Yield those of `jobs` that the command deals to this attempt, as they come; collective.

    Ends after the last one, or when a stop is requested.
    """
    by_key = {job.key: job for job in jobs}
    for number in count():
        key = agreed(partial(_wait_for, folder, attempt, number, stop))
        if key is None:
            return
        yield by_key[key]


def _wait_for(folder: Path, attempt: int, number: int, stop: StopRequest) -> str | None:
    """Return the key of a dealt job by its number; None if there is none and none follows."""
    while not stop.is_made():
        with suppress(OSError, UserError):  # storage that does not answer for a while
            hand = Hand(**read_document(folder / _NAME))
            if hand.attempt == attempt and number < len(hand.keys):
                return hand.keys[number]
            if hand.attempt == attempt and hand.is_last:
                return None
        time.sleep(_LOOK_S)
    return None
