"""Where an arm starts from: the pretrained weights, or a fresh model of the same shape."""

from pathlib import Path
from typing import Literal

import torch

from cluster.errors import UserError
from cluster.storage import sha256_file
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.randomness import key_seed
from pretrain.weights import load_pretrained

Arm = Literal["pretrained", "scratch"]
ARMS: tuple[Arm, ...] = ("pretrained", "scratch")


def initial_model(arm: Arm, model_folder: Path, tokenizer: Path, seed: int) -> TwoStreamTransformer:
    """The model of `model_folder` (float32, on the CPU); for "scratch" its shape, weights from `seed`.

    Raises UserError when the model is missing or damaged, or was pretrained with another tokenizer.
    """
    model = load_pretrained(model_folder)
    if sha256_file(model_folder / "tokenizer.json") != sha256_file(tokenizer):
        raise UserError(
            f"{model_folder} was pretrained with another tokenizer than {tokenizer}: "
            "run `permcode pretrain` on this corpus first"
        )
    if arm == "pretrained":
        return model
    torch.manual_seed(key_seed(seed, "scratch-weights"))
    return TwoStreamTransformer(model.config, model.vocab_size)
