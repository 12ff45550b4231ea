"""Small decoders, and what stands for a CUDA graph where there is no GPU."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pretrain.inference.decoder import Decoder
from pretrain.model.config import ModelConfig
from pretrain.model.transformer import TwoStreamTransformer

VOCABULARY, SEGMENT = 60, 24
POSITIONS = ("transformer_xl", "shaw", "rotary", "absolute_sinusoidal", "absolute_learned")


class NoWaits(TorchDispatchMode):
    """Fails at operations for which the host would wait for a GPU, or whose result has a shape that it must learn."""

    FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "unique")

    def __init__(self) -> None:
        super().__init__()
        self.num_operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in self.FORBIDDEN, f"{name} waits for the GPU"
        self.num_operations += 1
        return func(*args, **(kwargs or {}))


def called_again(body: Callable[[], Tensor]) -> Callable[[], Tensor]:
    def again() -> Tensor:
        with NoWaits():
            return body()

    return again


def make_decoder(
    positions: str,
    documents: bool = False,
    memory_tokens: int = 16,
    seed: int = 0,
    device: torch.device | None = None,
) -> Decoder:
    kind = {"kind": positions} | ({"max_positions": 64} if positions == "absolute_learned" else {})
    config = ModelConfig.model_validate(
        {
            "num_layers": 2,
            "model_dim": 32,
            "num_heads": 2,
            "head_dim": 16,
            "ffn_dim": 64,
            "memory_tokens": 0 if positions.startswith("absolute") else memory_tokens,
            "positions": kind,
            "segment_encodings": documents,
            "dropout": 0.0,
        }
    )
    torch.manual_seed(seed)
    model = TwoStreamTransformer(config, VOCABULARY)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.randn_like(parameter) * 0.1
    return Decoder(model.to(device or torch.device("cpu")), SEGMENT)


def draw_prompts(lengths: list[int]) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.integers(0, VOCABULARY, length) for length in lengths]
