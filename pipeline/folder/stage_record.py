"""STAGE.json: marks a finished stage and holds the checksums of its files."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from cluster.errors import UserError
from cluster.storage import read_document, sha256_file, write_document
from pipeline.folder.layout import StageFiles

FORMAT = 1

# Hashing a gibibyte takes less than ten seconds, which a command with nothing left to do can afford. The sizes of
# other files are checked here, and their contents where they are read.
MAX_REHASHED_BYTES = 1 << 30


@dataclass(frozen=True)
class StageRecord:
    """The record of a finished stage. `files` maps relative paths to {"bytes", "sha256"}.

    `wall_s` is the time of the command that finished the stage; `resumed` is true if an earlier command started it.
    """

    stage: str
    key: str
    version: int
    config: dict[str, Any]
    inputs: dict[str, str]
    signature: str
    files: dict[str, dict[str, Any]]
    summary: dict[str, Any]
    wall_s: float
    resumed: bool = False
    format: int = FORMAT
    finished_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))


_RECORDS = TypeAdapter(StageRecord)


def write_record(folder: Path, record: StageRecord) -> None:
    """Mark the stage in `folder` as finished. Atomic; nothing is written there afterwards."""
    write_document(folder / StageFiles.RECORD, asdict(record))


def read_record(folder: Path, name: str = StageFiles.RECORD) -> StageRecord | None:
    """Read the record of a stage; None if it is not finished. Raises UserError for a damaged record."""
    path = folder / name
    if not path.is_file():
        return None
    values = read_document(path)
    try:
        StageRecord(**values)  # no other keys
        record = _RECORDS.validate_python(values)
    except (TypeError, ValidationError):
        record = None
    if record is None or record.format != FORMAT or not all(map(_is_described, record.files.values())):
        raise UserError(f"{path} was written by another version of permcode: {_fix(folder)}")
    return record


def hash_outputs(folder: Path) -> dict[str, dict[str, Any]]:
    """Return size and SHA-256 of every file of a stage by relative path, without hidden files."""
    return {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
        for path in output_files(folder)
    }


def verify_outputs(folder: Path, record: StageRecord) -> None:
    """Raise UserError for the first file that is missing or not as the stage wrote it.

    Contents are compared from the smallest file on, up to `MAX_REHASHED_BYTES` in total.
    """
    for name in record.files:
        _verify_size(folder, record, name)
    hashed_bytes = 0
    for name, expected in sorted(record.files.items(), key=lambda file: file[1]["bytes"]):
        hashed_bytes += expected["bytes"]
        if hashed_bytes > MAX_REHASHED_BYTES:
            return
        _verify_content(folder, record, name)


def verify_output(folder: Path, record: StageRecord, name: str) -> None:
    """Raise UserError if this one file is missing or not as the stage wrote it."""
    _verify_size(folder, record, name)
    _verify_content(folder, record, name)


def _verify_size(folder: Path, record: StageRecord, name: str) -> None:
    path, num_bytes = folder / name, record.files[name]["bytes"]
    if not path.is_file():
        raise UserError(f"{path} is missing since stage {record.stage} finished: {_fix(folder)}")
    if path.stat().st_size != num_bytes:
        change = f"{path.stat().st_size} bytes, {num_bytes} when stage {record.stage} wrote it"
        raise UserError(f"{path} is damaged ({change}): {_fix(folder)}")


def _verify_content(folder: Path, record: StageRecord, name: str) -> None:
    if sha256_file(folder / name) != record.files[name]["sha256"]:
        change = f"its SHA-256 changed since stage {record.stage} wrote it"
        raise UserError(f"{folder / name} is damaged ({change}): {_fix(folder)}")


def output_files(folder: Path) -> Iterator[Path]:
    """Yield the files below `folder`, sorted, without the record and without hidden files and folders."""
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if (
            path.is_file()
            and path.name != StageFiles.RECORD
            and not any(part.startswith(".") for part in parts)
        ):
            yield path


def _is_described(file: Mapping[str, Any]) -> bool:
    return isinstance(file.get("bytes"), int) and isinstance(file.get("sha256"), str)


def _fix(folder: Path) -> str:
    return f"remove the folder {folder} and run the same command again to create it again"
