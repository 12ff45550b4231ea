"""Tensors in a folder of Hugging Face's format: one safetensors file, or several with an index."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from cluster.errors import UserError
from cluster.storage import read_json, write_bytes
from pretrain.weights import flaw_of

WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def read_weights(folder: Path) -> tuple[dict[str, Tensor], str]:
    """All tensors by name, float32, and where they were found. Raises UserError when they cannot be read."""
    if (folder / WEIGHTS).is_file():
        return _read(folder / WEIGHTS), str(folder / WEIGHTS)
    if (folder / _INDEX).is_file():
        return _read_shards(folder), str(folder / _INDEX)
    if pickled := sorted(folder.glob("*.bin")):
        raise UserError(
            f"{pickled[0]} is a pickle, which may run code when it is read: convert it to safetensors "
            "(load the model in transformers and call save_pretrained)"
        )
    raise UserError(f"{folder} has no weights: {WEIGHTS} is missing")


def _read_shards(folder: Path) -> dict[str, Tensor]:
    index = read_json(folder / _INDEX, "restore it")
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict):
        raise UserError(f"{folder / _INDEX} is damaged (no weight_map): restore it")
    tensors: dict[str, Tensor] = {}
    for name in weight_map.values():
        if not _is_in(folder, name):
            raise UserError(f"{folder / _INDEX} names {name!r:.80}, which is not in the folder: restore it")
    for name in sorted(set(weight_map.values())):
        tensors.update(_read(folder / name))
    if lost := sorted(set(weight_map) - set(tensors)):
        raise UserError(f"{folder / _INDEX} names {lost[0]}, which is in none of its files: restore them")
    return tensors


def _is_in(folder: Path, name: object) -> bool:
    """Whether an index, which is input, names a file of its folder, and nothing outside."""
    try:
        return isinstance(name, str) and (folder / name).parent == folder and (folder / name).is_file()
    except OSError:  # a name longer than names can be
        return False


def _read(path: Path) -> dict[str, Tensor]:
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path} is damaged ({error}): restore it") from None
    for name, tensor in tensors.items():
        if (flaw := flaw_of(tensor)) is not None:
            raise UserError(f"{path}: {name} has {flaw}; use another checkpoint of the model")
    return {name: tensor.float() for name, tensor in tensors.items()}


def write_weights(tensors: dict[str, Tensor], folder: Path) -> None:
    """One file that `transformers` reads."""
    on_cpu = {name: tensor.detach().float().cpu() for name, tensor in tensors.items()}
    write_bytes(folder / WEIGHTS, save(on_cpu, metadata={"format": "pt"}))
