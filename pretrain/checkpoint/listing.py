"""COMMIT.json: which files a commit consists of, with size and SHA-256, and a checksum of the list itself."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.errors import UserError
from cluster.storage import fingerprint, read_json, write_json
from pretrain.checkpoint.files import FileEntry

COMMIT_NAME = "COMMIT.json"
FORMAT = 3
OLDEST_FORMAT = 2
"""Its weights can be used; its state cannot be gone on from."""

_STEP_FOLDER = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True)
class Listing:
    """What COMMIT.json says."""

    format: int
    step: int
    files: dict[str, FileEntry]
    """By name."""

    @property
    def size_bytes(self) -> int:
        """Of all files together."""
        return sum(entry.size_bytes for entry in self.files.values())

    def matching(self, pattern: str) -> list[str]:
        """Names that match a glob pattern, sorted."""
        return sorted(name for name in self.files if Path(name).match(pattern))

    def write(self, folder: Path) -> None:
        """Atomically. Raises OSError, or UserError when the disk is full."""
        stored: dict[str, Any] = {
            "format": self.format,
            "step": self.step,
            "files": {name: entry.to_json() for name, entry in self.files.items()},
        }
        write_json(folder / COMMIT_NAME, stored | {"checksum": fingerprint(stored)})


def read_listing(folder: Path) -> Listing:
    """Raises UserError when the list is missing, damaged or another folder's, NewerFormatError as it says."""
    try:
        return _parse(read_json(folder / COMMIT_NAME), folder)
    except NewerFormatError:
        raise
    except (OSError, UserError, KeyError, TypeError, ValueError, AttributeError):
        raise UserError(f"{COMMIT_NAME} is missing or damaged") from None


def _parse(stored: dict[str, Any], folder: Path) -> Listing:
    checksum, number = stored.pop("checksum", None), int(stored["format"])
    if checksum != (None if number == OLDEST_FORMAT else fingerprint(stored)):
        raise ValueError("the list is not what was written")
    if number > FORMAT:
        raise NewerFormatError(
            f"{folder} was made by a newer permcode (format {number}; this one reads up to {FORMAT}): "
            "go on with that version"
        )
    files = {str(name): FileEntry.from_json(entry) for name, entry in stored["files"].items()}
    listing = Listing(number, int(stored["step"]), files)
    if step_of(folder) not in (None, listing.step):
        raise ValueError("the list is of another step")
    if any(Path(name).name != name for name in files):
        raise ValueError("the list names files elsewhere")
    return listing


class NewerFormatError(UserError):
    """The commit may be sound, so passing over it would lose work without need."""


def step_name(step: int) -> str:
    """The folder's name of the commit made after `step` steps."""
    return f"step-{step:08d}"


def step_of(folder: Path) -> int | None:
    """Which step's commit a folder is by its name; None if it is not named like one."""
    matched = _STEP_FOLDER.fullmatch(folder.name)
    return int(matched[1]) if matched else None


def step_folders(checkpoints: Path) -> list[Path]:
    """All that are named like commits, the newest first."""
    if not checkpoints.is_dir():
        return []
    steps = {path: step for path in checkpoints.iterdir() if (step := step_of(path)) is not None}
    return sorted(steps, key=lambda path: steps[path], reverse=True)
