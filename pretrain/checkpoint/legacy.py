"""Commits of format 2, written until the loop uses `CommitWriter`.

`checkpoints/step-00000100/` holds

    weights.safetensors     float32 masters by parameter name
    optimizer.safetensors   Adam moments by parameter name
    memory-LLLLL.safetensors  segment memory of the lanes from L on, one file per worker that wrote it
    state.json              step (= data cursor), Adam's step count, run fingerprint
    model.json              the network's shape: with tokenizer.json and the weights all it takes to use it
    tokenizer.json
    COMMIT.json             every file with size and SHA-256, written last

Nothing in it depends on rank or world size. The newest valid commit is found by looking, never by a pointer file.
"""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from cluster.errors import UserError
from cluster.storage import fsync_folder, read_json, sha256_file, write_bytes, write_json
from pretrain.engine.build import EngineState
from pretrain.model.memory import SegmentMemory, concatenate
from pretrain.weights import ModelDescription

COMMIT_NAME = "COMMIT.json"
_FORMAT = 2
_STEP_FOLDER = re.compile(r"step-(\d{8})")


@dataclass(frozen=True)
class Checkpoint:
    """A loaded commit: the state after `step` optimizer steps."""

    step: int
    engine: EngineState
    memory: SegmentMemory
    """Of all lanes."""


def temporary_folder(checkpoints: Path, step: int) -> Path:
    """Where the workers write a commit before it is one."""
    return checkpoints / f".step-{step:08d}.tmp"


def write_engine_state(folder: Path, state: EngineState, step: int, run_fingerprint: str) -> None:
    """Rank 0's part of a commit."""
    write_bytes(folder / "weights.safetensors", save(_contiguous(state.masters)))
    write_bytes(folder / "optimizer.safetensors", save(_contiguous(state.moments)))
    write_json(
        folder / "state.json",
        {"format": _FORMAT, "step": step, "adam_steps": state.adam_steps, "run_fingerprint": run_fingerprint},
    )


def write_description(folder: Path, description: ModelDescription, tokenizer: Path) -> None:
    """Rank 0's part of a commit that makes it usable by itself."""
    write_json(folder / "model.json", description.to_json())
    write_bytes(folder / "tokenizer.json", tokenizer.read_bytes())


def write_memory(folder: Path, memory: SegmentMemory, first_lane: int) -> None:
    """One worker's part of a commit: the memory of its lanes."""
    tensors = {f"layer-{number:03d}": layer for number, layer in enumerate(memory.layers_BMD)}
    tensors |= {"group": memory.group_BM, "document": memory.document_BM}
    write_bytes(folder / f"memory-{first_lane:05d}.safetensors", save(_contiguous(tensors)))


def commit(checkpoints: Path, step: int, keep: int) -> Path:
    """Make the temporary folder of `step` the newest checkpoint and drop all but the newest `keep`."""
    temporary, final = temporary_folder(checkpoints, step), checkpoints / f"step-{step:08d}"
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
        for path in sorted(temporary.iterdir())
        if not path.name.startswith(".")
    }
    write_json(temporary / COMMIT_NAME, {"format": _FORMAT, "step": step, "files": files})
    if final.exists():  # a damaged one that was passed over
        _remove(final)
    os.rename(temporary, final)
    fsync_folder(checkpoints)
    for old in _step_folders(checkpoints)[keep:]:
        _remove(old)
    return final


def problem_of(folder: Path) -> str | None:
    """Why a commit cannot be used, or None: every file of it is hashed."""
    try:
        listed = read_json(folder / COMMIT_NAME)["files"]
        for name, entry in listed.items():
            if not (folder / name).is_file():
                return f"{name} is missing"
            if (folder / name).stat().st_size != entry["bytes"] or sha256_file(folder / name) != entry[
                "sha256"
            ]:
                return f"{name} is damaged (checksum differs)"
    except (OSError, UserError, KeyError, TypeError, AttributeError):
        return f"{COMMIT_NAME} is missing or damaged"
    return None


def newest_valid(checkpoints: Path, on_damaged: Callable[[str], None]) -> Path | None:
    """The newest commit whose files all have their checksums, or None when there never was one.

    Every damaged one passed over is named to `on_damaged`. Raises UserError when there are commits and none is
    valid: starting again from step 0 would hide the loss.
    """
    folders = _step_folders(checkpoints)
    for folder in folders:
        problem = problem_of(folder)
        if problem is None:
            return folder
        on_damaged(f"checkpoint {folder.name}: {problem}; trying the one before it")
    if folders:
        raise UserError(
            f"{checkpoints}: none of {len(folders)} checkpoints is valid: "
            "restore one, or remove the folder to start from step 0"
        )
    return None


def load(folder: Path, run_fingerprint: str) -> Checkpoint:
    """Read a commit that `newest_valid` returned; UserError when it belongs to another run."""
    state = read_json(folder / "state.json")
    if state["run_fingerprint"] != run_fingerprint:
        raise UserError(
            f"{folder} belongs to another config or corpus: use another --out or remove the folder"
        )
    parts = []
    for path in sorted(folder.glob("memory-*.safetensors")):
        tensors = load_file(path)
        group_BM, document_BM = tensors.pop("group"), tensors.pop("document")
        parts.append(SegmentMemory(tuple(tensors[name] for name in sorted(tensors)), group_BM, document_BM))
    engine = EngineState(
        load_file(folder / "weights.safetensors"),
        load_file(folder / "optimizer.safetensors"),
        state["adam_steps"],
    )
    return Checkpoint(state["step"], engine, concatenate(parts))


def remove_unfinished(checkpoints: Path) -> None:
    """Clear what a kill left half written."""
    for path in checkpoints.glob(".*.tmp"):
        shutil.rmtree(path)


def _step_folders(checkpoints: Path) -> list[Path]:
    """Newest first."""
    if not checkpoints.is_dir():
        return []
    return sorted((path for path in checkpoints.iterdir() if _STEP_FOLDER.fullmatch(path.name)), reverse=True)


def _remove(folder: Path) -> None:
    """A kill in the middle leaves a folder that is no checkpoint, not a damaged one."""
    doomed = folder.with_name(f".{folder.name}.old.tmp")
    shutil.rmtree(doomed, ignore_errors=True)
    os.rename(folder, doomed)
    shutil.rmtree(doomed)


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to(torch.device("cpu")).contiguous() for name, tensor in tensors.items()}
