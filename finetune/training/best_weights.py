"""The file of the best weights so far, beside the checkpoints."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from cluster.errors import UserError
from cluster.storage import canonical_json, write_bytes

BEST_NAME = "best.safetensors"


@dataclass(frozen=True)
class Best:
    """The step with the highest headline metric on the validation split; of equal steps the last."""

    step: int
    metric: float


def write_best(folder: Path, best: Best, trained: dict[str, Tensor]) -> None:
    """Write the trained parameters in float32 to one file, atomically."""
    tensors = {name: value.detach().float().contiguous().cpu() for name, value in trained.items()}
    facts: dict[str, Any] = {"step": best.step, "metric": best.metric}
    # One entry, because safetensors writes several in an order that changes from process to process.
    metadata = {"best": json.dumps(facts | {"sha256": _sha256(facts, tensors)})}
    write_bytes(folder / BEST_NAME, save(tensors, metadata))


def read_best(folder: Path) -> Best | None:
    """Read the step and metric; None before the first evaluation. Raises UserError for a damaged file."""
    if not (folder / BEST_NAME).exists():
        return None
    try:
        with safe_open(folder / BEST_NAME, framework="pt") as file:
            stored = json.loads((file.metadata() or {})["best"])
        return Best(int(stored["step"]), float(stored["metric"]))
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / BEST_NAME} is damaged: remove {folder} to train again") from error


def load_best(folder: Path, module: nn.Module) -> None:
    """Load the best trained parameters into a module that was built like the trained one.

    Raises UserError if they do not fit it, or the file is damaged.
    """
    trained = {name: one for name, one in module.named_parameters() if one.requires_grad}
    try:
        with safe_open(folder / BEST_NAME, framework="pt") as file, torch.no_grad():
            stored = {name: file.get_tensor(name) for name in file.keys()}
            facts = json.loads((file.metadata() or {}).get("best", "{}"))
            written = facts.pop("sha256", None)
            if written is not None and written != _sha256(facts, stored):
                raise UserError(
                    f"{folder / BEST_NAME} is damaged (its checksum differs): remove {folder} to train again"
                )
            if set(stored) != set(trained):
                raise UserError(
                    f"{folder / BEST_NAME} holds other parameters than this system has: train it again"
                )
            for name, parameter in trained.items():
                value = stored[name]
                if value.shape != parameter.shape:
                    raise UserError(
                        f"{folder / BEST_NAME}: {name} has the shape {tuple(value.shape)}, the system "
                        f"{tuple(parameter.shape)}: train it again"
                    )
                parameter.copy_(value)
    except (SafetensorError, OSError, ValueError, AttributeError) as error:
        raise UserError(f"{folder / BEST_NAME} is damaged: remove {folder} to train again") from error


def _sha256(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """Return the hex digest of the facts, and of the tensors' names, types, shapes and values."""
    digest = hashlib.sha256(canonical_json(dict(facts)).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(canonical_json([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def is_better(metric: float, best: Best | None) -> bool:
    """Return whether a metric is better than the best one before it; False if it is not finite."""
    return math.isfinite(metric) and (best is None or metric > best.metric)


def is_as_good(metric: float, best: Best | None) -> bool:
    """Return whether a metric is at least as good as the best one before it; False if it is not finite."""
    return math.isfinite(metric) and (best is None or metric >= best.metric)
