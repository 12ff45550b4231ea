"""A trained system as a self-contained folder: its config, all its weights, its tokenizer.

system.json           the configs of the system and of the task, the shape of the base model
model.safetensors     all parameters, float32; absent if there are none
tokenizer.json
config.json           only if the system contains a network that can be used by itself: see `pretrain.weights`
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn
from torch.nn.utils import parametrize

from cluster.errors import UserError
from cluster.storage import read_document, sha256_bytes, sha256_file, write_bytes, write_document
from data_prep.tokenizer import CodeTokenizer
from finetune.systems.base import Base, System
from pretrain.files import PretrainFiles
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.weights import TOKENIZER_NAME, WEIGHTS_NAME, ModelDescription, write_config

SYSTEM_NAME = "system.json"
_FORMAT = 1


@dataclass(frozen=True)
class SavedSystem:
    """The content of `system.json`: configs as JSON values."""

    system: dict[str, Any]
    task: dict[str, Any]
    seed: int
    description: dict[str, Any]
    """The description of the base model."""
    labels: list[str]
    """Names of the labels by number; empty if the task has none."""
    threshold: float | None
    """The threshold for the second of two labels, if it was chosen on the validation split."""
    sha256: dict[str, str]

    @property
    def has_weights(self) -> bool:
        """Whether there are weights to load; False for systems that only count."""
        return WEIGHTS_NAME in self.sha256


def save_system(
    folder: Path,
    system: dict[str, Any],
    task: dict[str, Any],
    seed: int,
    labels: list[str],
    base: Base,
    module: nn.Module | None,
    threshold: float | None = None,
) -> None:
    """Write the folder, `system.json` last; `module` is the trained network, None for systems that only count."""
    hashes = {}
    if module is not None:
        tensors = {name: one.detach().float().contiguous().cpu() for name, one in module.named_parameters()}
        data = save(tensors)
        write_bytes(folder / WEIGHTS_NAME, data)
        hashes[WEIGHTS_NAME] = sha256_bytes(data)
    assert base.weights is not None
    write_bytes(folder / TOKENIZER_NAME, base.weights.tokenizer.read_bytes())
    hashes[TOKENIZER_NAME] = sha256_file(folder / TOKENIZER_NAME)
    (folder / PretrainFiles.MODEL_CONFIG).unlink(missing_ok=True)  # of a system that was saved here before
    if (found := _usable_network(module)) is not None:
        write_config(folder, found[1], base.description.segment_tokens, hashes, module=found[0])
    values = {
        "format": _FORMAT, "system": system, "task": task, "seed": seed, "labels": labels,
        "threshold": threshold, "description": base.description.to_json(), "sha256": hashes,
    }  # fmt: skip
    write_document(folder / SYSTEM_NAME, values)


def module_of(system: System) -> nn.Module | None:
    """Return the network of a system, trained or not; None if the system only counts."""
    module = system.learner.module if system.learner else getattr(system, "module", None)
    assert module is None or isinstance(module, nn.Module)
    return module


def _usable_network(module: nn.Module | None) -> tuple[str, TwoStreamTransformer] | None:
    """Return (name, network) of the only network in a system; None without one, or if LoRA splits its weights."""
    found = [] if module is None else [
        (name, one) for name, one in module.named_modules() if isinstance(one, TwoStreamTransformer)
    ]  # fmt: skip
    if len(found) != 1 or any(parametrize.is_parametrized(one) for one in found[0][1].modules()):
        return None
    return found[0]


def count_parameters(module: nn.Module) -> tuple[int, int]:
    """Return the numbers of (all parameters, trained parameters)."""
    sizes = [(one.numel(), one.requires_grad) for one in module.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, is_trained in sizes if is_trained)


def read_saved(folder: Path) -> SavedSystem:
    """Read `system.json`, and check the files that it lists.

    Raises UserError if the folder is not that of a system, or a file is missing or damaged.
    """
    path = folder / SYSTEM_NAME
    if not path.is_file():
        raise UserError(
            f"{folder} holds no finetuned system ({SYSTEM_NAME} is missing): give a system's model folder"
        )
    stored = read_document(path, "finetune again")
    try:
        if stored["format"] != _FORMAT:
            raise UserError(
                f"{path} was written by another version of permcode: finetune again with this one"
            )
        found = SavedSystem(
            stored["system"], stored["task"], int(stored["seed"]), stored["description"], list(stored["labels"]),
            stored.get("threshold"), dict(stored["sha256"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} does not describe a system: finetune again") from error
    for name, expected in found.sha256.items():
        if not (folder / name).is_file() or sha256_file(folder / name) != expected:
            raise UserError(f"{folder / name} is missing or damaged (checksum differs): finetune again")
    return found


def saved_base(saved: SavedSystem, folder: Path, device: torch.device) -> Base:
    """Return the base model's shape and tokenizer without weights; the system's own weights include them."""
    description = ModelDescription.of_json(saved.description, folder / SYSTEM_NAME)
    return Base(description, CodeTokenizer.load(folder / TOKENIZER_NAME), None, device)


def load_weights(folder: Path, module: nn.Module) -> None:
    """Load the saved parameters into a module built from the same configs, and set it to evaluation mode.

    Raises UserError if they do not fit.
    """
    path = folder / WEIGHTS_NAME
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged: finetune again") from error
    parameters = dict(module.named_parameters())
    if set(tensors) != set(parameters):
        raise UserError(
            f"{path} holds other parameters than the system has in this version of permcode: finetune again"
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            if tensors[name].shape != parameter.shape:
                raise UserError(f"{path}: {name} has another shape than in the system: finetune again")
            parameter.copy_(tensors[name])
    module.eval()
