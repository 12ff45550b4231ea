"""COMMIT.json: the list of a checkpoint's files with size and SHA-256; and the names of checkpoint folders."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.errors import UserError
from cluster.storage import fingerprint, read_json, write_json

COMMIT_NAME = "COMMIT.json"
STATE_NAME = "state.json"
FORMAT = 3

_STEP_FOLDER = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True)
class FileEntry:
    """The size and checksum that a file must have."""

    size_bytes: int
    sha256: str

    def to_json(self) -> dict[str, Any]:
        """Return the entry of COMMIT.json."""
        return {"bytes": self.size_bytes, "sha256": self.sha256}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "FileEntry":
        """Parse an entry. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(int(stored["bytes"]), str(stored["sha256"]))


@dataclass(frozen=True)
class Listing:
    """The content of COMMIT.json."""

    step: int
    files: dict[str, FileEntry]
    """Entries by file name."""

    @property
    def size_bytes(self) -> int:
        """The size of all files together."""
        return sum(entry.size_bytes for entry in self.files.values())

    def matching(self, pattern: str) -> list[str]:
        """Return the file names that match a glob pattern, sorted."""
        return sorted(name for name in self.files if Path(name).match(pattern))

    def write(self, folder: Path) -> None:
        """Write COMMIT.json atomically. Raises OSError, or UserError when the disk is full."""
        stored: dict[str, Any] = {
            "format": FORMAT,
            "step": self.step,
            "files": {name: entry.to_json() for name, entry in self.files.items()},
        }
        write_json(folder / COMMIT_NAME, stored | {"checksum": fingerprint(stored)})


def read_listing(folder: Path) -> Listing:
    """Read COMMIT.json.

    Raises UserError when it is missing, damaged or another folder's, NewerFormatError when a newer version wrote it.
    """
    try:
        return _parse(read_json(folder / COMMIT_NAME), folder)
    except NewerFormatError:
        raise
    except (OSError, UserError, KeyError, TypeError, ValueError, AttributeError):
        raise UserError(f"{COMMIT_NAME} is missing or damaged") from None


def _parse(stored: dict[str, Any], folder: Path) -> Listing:
    checksum, number = stored.pop("checksum", None), int(stored["format"])
    if checksum != fingerprint(stored):
        raise ValueError("the list is not what was written")
    if number > FORMAT:
        raise NewerFormatError(
            f"{folder} was made by a newer permcode (format {number}; this one reads up to {FORMAT}): "
            "use that version"
        )
    files = {str(name): FileEntry.from_json(entry) for name, entry in stored["files"].items()}
    listing = Listing(int(stored["step"]), files)
    if step_of(folder) not in (None, listing.step):
        raise ValueError("the list is of another step")
    if any(Path(name).name != name for name in files):
        raise ValueError("the list names files elsewhere")
    return listing


class NewerFormatError(UserError):
    """A newer version wrote the checkpoint. It may be valid, so skipping it would lose work without need."""


def step_name(step: int) -> str:
    """Return the folder's name of the checkpoint made after `step` steps."""
    return f"step-{step:08d}"


def step_of(folder: Path) -> int | None:
    """Return the step in the name of a checkpoint's folder; None for another name."""
    matched = _STEP_FOLDER.fullmatch(folder.name)
    return int(matched[1]) if matched else None


def step_folders(checkpoints: Path) -> list[Path]:
    """Return all folders that are named like checkpoints, the newest first."""
    if not checkpoints.is_dir():
        return []
    steps = {path: step for path in checkpoints.iterdir() if (step := step_of(path)) is not None}
    return sorted(steps, key=lambda path: steps[path], reverse=True)
