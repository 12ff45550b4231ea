"""Rewinds: the data that a run skips, and the checkpoints that a rewind has made void.

`rewinds.json` in the run's folder is written before anything else of a rewind happens, so the next start completes a
rewind that was killed: a checkpoint has the number of rewinds before it, and is void if it lies after the target of a
later one.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster.errors import UserError
from cluster.storage import fingerprint, write_json
from pretrain.checkpoint.listing import step_name
from pretrain.journal.events import Rewound
from pretrain.journal.recorder import Recorder

_NAME = "rewinds.json"


@dataclass(frozen=True)
class Rewind:
    """A return from the state after `from_step` to the one after `to_step`, from where on some data is skipped."""

    from_step: int
    to_step: int
    skipped_from_cursor: int
    skipped_to_cursor: int
    """The end of the range [from, to) of data steps that are not read any more."""
    cause: str


@dataclass(frozen=True)
class Rewinds:
    """All rewinds of a run, in the order in which they happened."""

    rewinds: tuple[Rewind, ...] = ()

    def __len__(self) -> int:
        return len(self.rewinds)

    def next_cursor(self, cursor: int) -> int:
        """Return the data step to read after `cursor`."""
        return self.first_from(cursor + 1)

    def first_from(self, cursor: int) -> int:
        """Return the first data step from `cursor` on that is not skipped."""
        for rewind in sorted(self.rewinds, key=lambda rewind: rewind.skipped_from_cursor):
            if rewind.skipped_from_cursor <= cursor < rewind.skipped_to_cursor:
                cursor = rewind.skipped_to_cursor
        return cursor

    def is_void(self, step: int, rewinds_seen: int) -> bool:
        """Return whether a rewind after the first `rewinds_seen` ones went back to before a checkpoint of `step`."""
        return any(step > rewind.to_step for rewind in self.rewinds[rewinds_seen:])

    def with_one_more(self, rewind: Rewind) -> "Rewinds":
        """Return these rewinds and `rewind`."""
        return Rewinds((*self.rewinds, rewind))


def read_rewinds(folder: Path) -> Rewinds:
    """Read the rewinds of the run in `folder`.

    Raises UserError when the file is damaged, because without it other data would be read.
    """
    path = folder / _NAME
    if not path.exists():
        return Rewinds()
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["checksum"] != fingerprint(stored["rewinds"]):
            raise ValueError("checksum differs")
        return Rewinds(tuple(Rewind(**entry) for entry in stored["rewinds"]))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f'{path} is damaged: restore it from the "rewind" events of the journal, or use another --out'
        ) from error


def write_rewinds(folder: Path, rewinds: Rewinds) -> None:
    """Write the rewinds to the run's folder."""
    entries = [asdict(rewind) for rewind in rewinds.rewinds]
    write_json(folder / _NAME, {"rewinds": entries, "checksum": fingerprint(entries)})


def record_rewind(recorder: Recorder, rewind: Rewind) -> None:
    """Record in the journal what a rewind discards and which data it skips."""
    recorder.event(
        f"{rewind.cause}: going back to the state after step {rewind.to_step}, from there past data steps "
        f"{rewind.skipped_from_cursor} to {rewind.skipped_to_cursor - 1}",
        Rewound(to_checkpoint=step_name(rewind.to_step), **asdict(rewind)),
        "warning",
    )
