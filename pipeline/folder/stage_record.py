"""STAGE.json: the mark of a finished stage, and the check that its files are still what they were."""

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

# Reading a gibibyte keeps "nothing to do" under ten seconds; what is larger is checked by its sizes here
# and by its own checksums where it is read.
MAX_REHASHED_BYTES = 1 << 30


@dataclass(frozen=True)
class StageRecord:
    """What a finished stage leaves about itself. `files` maps relative paths to {"bytes", "sha256"}.

    `wall_s` is the time of the command that finished the stage; `resumed` says that an earlier one began it.
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
    """Declare the stage in `folder` finished: the last thing written there, atomically."""
    write_document(folder / StageFiles.RECORD, asdict(record))


def read_record(folder: Path, name: str = StageFiles.RECORD) -> StageRecord | None:
    """The record of a finished stage, None where it is not finished; a damaged one is a UserError."""
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
        raise UserError(f"{path} was written by another version of permcode: {_mend(folder)}")
    return record


def hash_outputs(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of every file of a stage by relative path; names with a leading dot are left out."""
    return {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
        for path in output_files(folder)
    }


def verify_outputs(folder: Path, record: StageRecord) -> None:
    """Raise UserError naming the first file that is missing or is not what the stage wrote.

    Contents are compared of the smallest files first, as many as `MAX_REHASHED_BYTES` allow.
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
    """Raise UserError when this one file is missing or is not what the stage wrote."""
    _verify_size(folder, record, name)
    _verify_content(folder, record, name)


def _verify_size(folder: Path, record: StageRecord, name: str) -> None:
    path, num_bytes = folder / name, record.files[name]["bytes"]
    if not path.is_file():
        raise UserError(f"{path} is missing since stage {record.stage} finished: {_mend(folder)}")
    if path.stat().st_size != num_bytes:
        change = f"{path.stat().st_size} bytes, {num_bytes} when stage {record.stage} wrote it"
        raise UserError(f"{path} is damaged ({change}): {_mend(folder)}")


def _verify_content(folder: Path, record: StageRecord, name: str) -> None:
    if sha256_file(folder / name) != record.files[name]["sha256"]:
        change = f"its SHA-256 changed since stage {record.stage} wrote it"
        raise UserError(f"{folder / name} is damaged ({change}): {_mend(folder)}")


def output_files(folder: Path) -> Iterator[Path]:
    """The files below `folder`, sorted, but the record itself and all whose path below it has a hidden part."""
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


def _mend(folder: Path) -> str:
    return f"remove the folder {folder} and run the same command again to make it anew"
