"""Rewinds: which data a run passes over, and which checkpoints a rewind has made void.

`rewinds.json` in the run's folder is written before anything else of a rewind happens, so a kill anywhere in it is
finished by the next start: a checkpoint knows how many rewinds it has seen, and one that lies behind the target of a
rewind it has not seen is void.
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
    """From the state after `from_step` back to the one after `to_step`, from then on without some data."""

    from_step: int
    to_step: int
    skipped_from_cursor: int
    skipped_to_cursor: int
    """Half-open: data steps [from, to) are read no more."""
    cause: str


@dataclass(frozen=True)
class Rewinds:
    """All rewinds of a run, in the order in which they happened."""

    rewinds: tuple[Rewind, ...] = ()

    def __len__(self) -> int:
        return len(self.rewinds)

    def next_cursor(self, cursor: int) -> int:
        """The data step to read after `cursor`."""
        return self.first_from(cursor + 1)

    def first_from(self, cursor: int) -> int:
        """The first data step from `cursor` on that is not passed over."""
        for rewind in sorted(self.rewinds, key=lambda rewind: rewind.skipped_from_cursor):
            if rewind.skipped_from_cursor <= cursor < rewind.skipped_to_cursor:
                cursor = rewind.skipped_to_cursor
        return cursor

    def is_void(self, step: int, rewinds_seen: int) -> bool:
        """Whether a checkpoint of `step`, made after `rewinds_seen` rewinds, has been gone back behind."""
        return any(step > rewind.to_step for rewind in self.rewinds[rewinds_seen:])

    def with_one_more(self, rewind: Rewind) -> "Rewinds":
        """These and `rewind`."""
        return Rewinds((*self.rewinds, rewind))


def read_rewinds(folder: Path) -> Rewinds:
    """Those of the run in `folder`. UserError when the file is damaged: without it other data would be read."""
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
            f'{path} is damaged: write into it again what the journal\'s events "rewind" say, or use another --out'
        ) from error


def write_rewinds(folder: Path, rewinds: Rewinds) -> None:
    """Make them last."""
    entries = [asdict(rewind) for rewind in rewinds.rewinds]
    write_json(folder / _NAME, {"rewinds": entries, "checksum": fingerprint(entries)})


def record_rewind(recorder: Recorder, rewind: Rewind) -> None:
    """Write into the journal what a rewind throws away and what it passes over."""
    recorder.event(
        f"{rewind.cause}: going back to the state after step {rewind.to_step}, from there past data steps "
        f"{rewind.skipped_from_cursor} to {rewind.skipped_to_cursor - 1}",
        Rewound(to_commit=step_name(rewind.to_step), **asdict(rewind)),
        "warning",
    )
