"""Model folders: config, weights and tokenizer.

The folder of a finetuned system is a model folder, too, if it contains the network as a module: `config.json` then
names that module, and the weights are those of the whole system.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors.torch import load_file, save
from torch import Tensor

from cluster.errors import UserError
from cluster.storage import read_document, sha256_bytes, sha256_file, write_bytes, write_document
from pretrain.files import PretrainFiles
from pretrain.model.config import AbsoluteLearnedPositions, ModelConfig
from pretrain.model.transformer import TwoStreamTransformer

_FORMAT = 2
WEIGHTS_NAME = "model.safetensors"
TOKENIZER_NAME = "tokenizer.json"
_DEFAULT_SEGMENT_TOKENS = 512
"""The segment length of a model whose training is not known: XLNet's."""
_MODEL_ADVICE = 'restore it or pretrain again (to change it by hand, remove its entry "checksum")'


@dataclass(frozen=True)
class ModelDescription:
    """A network without its weights. `segment_tokens` is the length of the segments it was trained on."""

    config: ModelConfig
    vocab_size: int
    segment_tokens: int

    @classmethod
    def of(cls, model: TwoStreamTransformer, segment_tokens: int | None) -> "ModelDescription":
        """Describe a network; without `segment_tokens`, segments have 512 tokens, or as many as it has positions."""
        return cls(model.config, model.vocab_size, segment_tokens or _default_segment_tokens(model.config))

    def to_json(self) -> dict[str, Any]:
        """Return the content of a model's config file."""
        return {
            "format": _FORMAT,
            "model": self.config.model_dump(mode="json"),
            "vocab_size": self.vocab_size,
            "segment_tokens": self.segment_tokens,
        }

    @classmethod
    def read(cls, path: Path) -> "ModelDescription":
        """Read a description. Raises UserError when the file is damaged or of another version of permcode."""
        return cls.of_json(read_document(path, _MODEL_ADVICE), path)

    @classmethod
    def of_json(cls, stored: Any, path: Path) -> "ModelDescription":
        """Parse the content of `path`, as `to_json` returned it. Raises UserError as `read`."""
        try:
            if stored["format"] != _FORMAT:
                raise UserError(
                    f"{path} was written by another version of permcode: pretrain again with this one"
                )
            config = ModelConfig.model_validate(stored["model"])
            vocab_size = int(stored["vocab_size"])
            segment_tokens = int(stored.get("segment_tokens", _default_segment_tokens(config)))
            if min(vocab_size, segment_tokens) < 1:
                raise ValueError(f"vocab_size={vocab_size}, segment_tokens={segment_tokens}")
            return cls(config, vocab_size, segment_tokens)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError, ValidationError) as error:
            raise UserError(f"{path} does not describe a model: restore it or pretrain again") from error


def _default_segment_tokens(config: ModelConfig) -> int:
    positions = config.positions
    if isinstance(positions, AbsoluteLearnedPositions):
        return min(_DEFAULT_SEGMENT_TOKENS, positions.max_positions)
    return _DEFAULT_SEGMENT_TOKENS


def save_model(
    model: TwoStreamTransformer,
    folder: Path,
    tokenizer: Path,
    weights: dict[str, Tensor] | None = None,
    segment_tokens: int | None = None,
) -> None:
    """Write `config.json` (last), `model.safetensors` (float32) and `tokenizer.json`.

    `weights` replaces the model's own parameters, e.g. by an optimizer's float32 masters. `segment_tokens` is the
    length of the segments it was trained on.
    """
    source = weights or dict(model.named_parameters())
    data = save({name: value.detach().float().contiguous().cpu() for name, value in source.items()})
    write_bytes(folder / WEIGHTS_NAME, data)
    write_bytes(folder / TOKENIZER_NAME, tokenizer.read_bytes())
    hashes = {WEIGHTS_NAME: sha256_bytes(data), TOKENIZER_NAME: sha256_file(folder / TOKENIZER_NAME)}
    write_config(folder, model, segment_tokens, hashes)


def write_config(
    folder: Path,
    model: TwoStreamTransformer,
    segment_tokens: int | None,
    sha256: Mapping[str, str],
    module: str = "",
) -> None:
    """Write the `config.json` of a folder with the files in `sha256`; `module` is the model's name in a system."""
    description = ModelDescription.of(model, segment_tokens).to_json()
    write_document(
        folder / PretrainFiles.MODEL_CONFIG, description | {"sha256": dict(sha256), "module": module}
    )


def load_pretrained(folder: Path) -> TwoStreamTransformer:
    """Load the model of a folder, float32, in training mode. Raises UserError when a file is missing or damaged."""
    return build_model(check_model_folder(folder), folder)


def check_model_folder(folder: Path) -> ModelDescription:
    """Verify the checksums of a model folder and return its description. Raises UserError for a damaged file."""
    path = folder / PretrainFiles.MODEL_CONFIG
    if not path.is_file():
        raise UserError(
            f"{folder} holds no model ({PretrainFiles.MODEL_CONFIG} is missing): run `permcode pretrain` first"
        )
    description = ModelDescription.read(path)
    hashes = read_document(path, _MODEL_ADVICE).get("sha256")
    if not isinstance(hashes, dict):
        raise UserError(f"{path} is damaged (no checksums): restore it or pretrain again")
    for name, expected in hashes.items():
        if not (folder / name).is_file() or sha256_file(folder / name) != expected:
            raise UserError(
                f"{folder / name} is missing or damaged (checksum differs): restore it or pretrain again"
            )
    return description


def build_model(description: ModelDescription, folder: Path) -> TwoStreamTransformer:
    """Build a network with the weights of a model folder.

    Raises UserError with the first tensor that does not fit when they are of another network.
    """
    path = folder / WEIGHTS_NAME
    try:
        tensors = load_file(path)
    except Exception as error:  # safetensors raises many types of exceptions for damage
        raise UserError(f"{path} is damaged (cannot be read): restore it or pretrain again") from error
    module = read_document(folder / PretrainFiles.MODEL_CONFIG, _MODEL_ADVICE).get("module")
    if module:
        start = f"{module}."
        tensors = {name.removeprefix(start): one for name, one in tensors.items() if name.startswith(start)}
    return model_with(description, tensors, path)


def model_with(
    description: ModelDescription, weights: Mapping[str, Tensor], source: Path
) -> TwoStreamTransformer:
    """Build a network with these weights, which were read from `source`.

    Raises UserError with the first tensor that does not fit when they are of another network or not finite.
    """
    model = TwoStreamTransformer(description.config, description.vocab_size)
    problem = _misfit(dict(model.named_parameters()), weights)
    if problem is not None:
        raise UserError(f"{source} does not fit its config: {problem}; restore the folder or pretrain again")
    for name, tensor in weights.items():
        if (flaw := flaw_of(tensor)) is not None:
            raise UserError(f"{source} cannot be used: {name} has {flaw}; restore it or pretrain again")
    model.load_state_dict(weights)
    return model


def flaw_of(tensor: Tensor) -> str | None:
    """Return which numbers of a tensor cannot be weights, as text; None if all can."""
    if tensor.is_complex():
        return "complex numbers"
    if not bool(tensor.float().isfinite().all()):
        return "numbers that are not finite in float32"
    return None


def _misfit(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str | None:
    for name, parameter in wanted.items():
        if name not in found:
            return f"{name} is missing"
        if found[name].shape != parameter.shape:
            return f"{name} has shape {tuple(found[name].shape)}, not {tuple(parameter.shape)}"
    unknown = sorted(found.keys() - wanted.keys())
    return f"{unknown[0]} is not in the model" if unknown else None
