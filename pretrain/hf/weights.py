"""Weights of permcode's model and Hugging Face's XLNet: files, names and layouts of the tensors.

Shapes: N heads, H head dim, D model, F feed-forward, V vocabulary, X = N * H.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from cluster.errors import UserError
from cluster.storage import read_json, write_bytes
from pretrain.model.config import ModelConfig
from pretrain.weights import flaw_of

WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def read_weights(folder: Path) -> tuple[dict[str, Tensor], str]:
    """Read all tensors by name, float32; return them and their file. Raises UserError when they cannot be read."""
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
    """Return whether `name` in an index, which is not trusted, is a file in its folder."""
    try:
        return isinstance(name, str) and (folder / name).parent == folder and (folder / name).is_file()
    except OSError:  # the name is too long
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
    """Write the tensors as one file that `transformers` reads."""
    on_cpu = {name: tensor.detach().float().cpu() for name, tensor in tensors.items()}
    write_bytes(folder / WEIGHTS, save(on_cpu, metadata={"format": "pt"}))


HEAD_WEIGHT = "lm_loss.weight"
EMBEDDING = "transformer.word_embedding.weight"


class Layout(Enum):
    """The layout in XLNet of a tensor that is a vector, a table or a linear layer's [out, in] in permcode."""

    SAME = auto()
    ROW = auto()
    """[1, 1, D] for [D]."""
    INTO_HEADS = auto()
    """[D, N, H] for [X, D]."""
    OUT_OF_HEADS = auto()
    """[D, N, H] for [D, X]."""


@dataclass(frozen=True)
class Pair:
    """One tensor under both names, and its shape in Hugging Face's file. `ours` is None where permcode has none:
    a model without segment encodings, whose XLNet has zeros there."""

    ours: str | None
    theirs: str
    layout: Layout
    shape: tuple[int, ...]

    def outwards(self, tensor: Tensor) -> Tensor:
        """Convert from permcode's layout to XLNet's."""
        if self.layout is Layout.INTO_HEADS:
            tensor = tensor.T
        return tensor.reshape(self.shape).contiguous()

    def inwards(self, tensor: Tensor) -> Tensor:
        """Convert from XLNet's layout to permcode's."""
        match self.layout:
            case Layout.ROW:
                tensor = tensor.flatten()
            case Layout.INTO_HEADS:
                tensor = tensor.flatten(1).T
            case Layout.OUT_OF_HEADS:
                tensor = tensor.flatten(1)
        return tensor.contiguous()


def pairs(config: ModelConfig, vocab_size: int) -> Iterator[Pair]:
    """Return every tensor of both models; `lm_loss.weight` only if it is not the embedding."""
    dim = config.model_dim
    yield Pair("embedding.weight", EMBEDDING, Layout.SAME, (vocab_size, dim))
    yield Pair("query_start_D", "transformer.mask_emb", Layout.ROW, (1, 1, dim))
    yield Pair("output_bias_V", "lm_loss.bias", Layout.SAME, (vocab_size,))
    if not config.tie_embeddings:
        yield Pair("output.weight", HEAD_WEIGHT, Layout.SAME, (vocab_size, dim))
    for number in range(config.num_layers):
        yield from _layer_pairs(config, f"blocks.{number}", f"transformer.layer.{number}")


def _layer_pairs(config: ModelConfig, ours: str, theirs: str) -> list[Pair]:
    dim, ffn, heads = config.model_dim, config.ffn_dim, (config.num_heads, config.head_dim)
    attention, positions = f"{ours}.attention", f"{ours}.attention.positions"
    segments = f"{attention}.segments" if config.segment_encodings else None
    rel_attn, ff = f"{theirs}.rel_attn", f"{theirs}.ff"
    return [
        Pair(f"{attention}.query.weight", f"{rel_attn}.q", Layout.INTO_HEADS, (dim, *heads)),
        Pair(f"{attention}.key.weight", f"{rel_attn}.k", Layout.INTO_HEADS, (dim, *heads)),
        Pair(f"{attention}.value.weight", f"{rel_attn}.v", Layout.INTO_HEADS, (dim, *heads)),
        Pair(f"{attention}.output.weight", f"{rel_attn}.o", Layout.OUT_OF_HEADS, (dim, *heads)),
        Pair(f"{positions}.projection.weight", f"{rel_attn}.r", Layout.INTO_HEADS, (dim, *heads)),
        Pair(f"{positions}.content_bias_NH", f"{rel_attn}.r_w_bias", Layout.SAME, heads),
        Pair(f"{positions}.position_bias_NH", f"{rel_attn}.r_r_bias", Layout.SAME, heads),
        Pair(segments and f"{segments}.query_bias_NH", f"{rel_attn}.r_s_bias", Layout.SAME, heads),
        Pair(segments and f"{segments}.key_2NH", f"{rel_attn}.seg_embed", Layout.SAME, (2, *heads)),
        Pair(f"{ours}.attention_norm.weight", f"{rel_attn}.layer_norm.weight", Layout.SAME, (dim,)),
        Pair(f"{ours}.attention_norm.bias", f"{rel_attn}.layer_norm.bias", Layout.SAME, (dim,)),
        Pair(f"{ours}.feed_forward.up.weight", f"{ff}.layer_1.weight", Layout.SAME, (ffn, dim)),
        Pair(f"{ours}.feed_forward.up.bias", f"{ff}.layer_1.bias", Layout.SAME, (ffn,)),
        Pair(f"{ours}.feed_forward.down.weight", f"{ff}.layer_2.weight", Layout.SAME, (dim, ffn)),
        Pair(f"{ours}.feed_forward.down.bias", f"{ff}.layer_2.bias", Layout.SAME, (dim,)),
        Pair(f"{ours}.feed_forward_norm.weight", f"{ff}.layer_norm.weight", Layout.SAME, (dim,)),
        Pair(f"{ours}.feed_forward_norm.bias", f"{ff}.layer_norm.bias", Layout.SAME, (dim,)),
    ]


def to_xlnet(ours: Mapping[str, Tensor], config: ModelConfig, vocab_size: int) -> dict[str, Tensor]:
    """Return XLNet's tensors from all of permcode's. Gradients convert like weights: nothing is scaled."""
    found = list(pairs(config, vocab_size))
    if left_over := set(ours) - {pair.ours for pair in found}:
        raise ValueError(f"no place in XLNet for {sorted(left_over)}")
    like = ours["embedding.weight"]
    return {
        pair.theirs: like.new_zeros(pair.shape) if pair.ours is None else pair.outwards(ours[pair.ours])
        for pair in found
    }


def from_xlnet(
    theirs: Mapping[str, Tensor], config: ModelConfig, vocab_size: int, source: str
) -> dict[str, Tensor]:
    """Return permcode's tensors from all of XLNet's, which were read from `source`.

    Raises UserError that names a tensor that is missing, has another shape, or has no place in the model.
    """
    theirs = _without_tied_head(theirs, config, source)
    found: list[Pair] = []
    for pair in pairs(config, vocab_size):
        if pair.theirs not in theirs:
            raise UserError(f"{source} lacks {pair.theirs}: import a folder saved from XLNetLMHeadModel")
        shape = tuple(theirs[pair.theirs].shape)
        if shape != pair.shape:
            raise UserError(f"{source}: {pair.theirs} has shape {shape}, and config.json says {pair.shape}")
        found.append(pair)
    if left_over := sorted(set(theirs) - {pair.theirs for pair in found}):
        raise UserError(
            f"{source} has {len(left_over)} tensors that XLNetLMHeadModel does not know, the first {left_over[0]}: "
            "import a folder saved from XLNetLMHeadModel with the config.json that belongs to it"
        )
    return {pair.ours: pair.inwards(theirs[pair.theirs]) for pair in found if pair.ours is not None}


def _without_tied_head(
    theirs: Mapping[str, Tensor], config: ModelConfig, source: str
) -> Mapping[str, Tensor]:
    head, embedding = theirs.get(HEAD_WEIGHT), theirs.get(EMBEDDING)
    if not config.tie_embeddings or head is None or embedding is None:
        return theirs
    if not torch.equal(head, embedding):
        raise UserError(
            f"{source}: {HEAD_WEIGHT} and {EMBEDDING} differ although config.json ties them: "
            "set tie_word_embeddings to false to import both"
        )
    return {name: tensor for name, tensor in theirs.items() if name != HEAD_WEIGHT}


def tells_documents_apart(theirs: Mapping[str, Tensor]) -> bool:
    """Return whether an XLNet has segment encodings: without them these tensors are zeros."""
    return any(
        tensor.any().item() for name, tensor in theirs.items() if name.endswith(("r_s_bias", "seg_embed"))
    )
