"""A model as a folder: its config, its weights, the tokenizer it reads."""

from pathlib import Path

from safetensors.torch import load_file, save
from torch import Tensor

from cluster.errors import UserError
from cluster.storage import read_json, sha256_bytes, sha256_file, write_bytes, write_json
from pretrain.model.config import ModelConfig
from pretrain.model.transformer import TwoStreamTransformer

_FORMAT = 2


def save_model(
    model: TwoStreamTransformer, folder: Path, tokenizer: Path, weights: dict[str, Tensor] | None = None
) -> None:
    """Write `config.json` (last), `model.safetensors` (float32) and `tokenizer.json`.

    `weights` replaces the model's own parameters, e.g. by an optimizer's float32 masters.
    """
    source = weights or dict(model.named_parameters())
    data = save({name: value.detach().float().contiguous().cpu() for name, value in source.items()})
    write_bytes(folder / "model.safetensors", data)
    write_bytes(folder / "tokenizer.json", tokenizer.read_bytes())
    write_json(
        folder / "config.json",
        {
            "format": _FORMAT,
            "model": model.config.model_dump(mode="json"),
            "vocab_size": model.vocab_size,
            "sha256": {
                "model.safetensors": sha256_bytes(data),
                "tokenizer.json": sha256_file(folder / "tokenizer.json"),
            },
        },
    )


def load_pretrained(folder: Path) -> TwoStreamTransformer:
    """The model of a folder, float32, in training mode. Raises UserError when a file is missing or damaged."""
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} holds no model (config.json is missing): run `permcode pretrain` first")
    stored = read_json(folder / "config.json")
    for name, expected in stored["sha256"].items():
        if not (folder / name).is_file() or sha256_file(folder / name) != expected:
            raise UserError(
                f"{folder / name} is missing or damaged (checksum differs): restore it or pretrain again"
            )
    model = TwoStreamTransformer(ModelConfig.model_validate(stored["model"]), stored["vocab_size"])
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model
