"""Counted parameters are the real module's, whatever is chosen."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pretrain.model.config import ModelConfig
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.plan.parameters import count_parameters

POSITIONS: list[dict[str, object]] = [
    {"kind": "transformer_xl"},
    {"kind": "shaw", "max_distance_tokens": 7},
    {"kind": "rotary"},
    {"kind": "absolute_sinusoidal"},
    {"kind": "absolute_learned", "max_positions": 11},
]


def module_parameters(config: ModelConfig, vocab_size: int) -> int:
    with torch.device("meta"):
        model = TwoStreamTransformer(config, vocab_size)
    return sum(parameter.numel() for parameter in model.parameters())


@settings(max_examples=60, deadline=None)
@given(
    positions=st.sampled_from(POSITIONS),
    norm=st.sampled_from(["post", "pre"]),
    activation=st.sampled_from(["gelu", "relu", "swiglu"]),
    tied=st.booleans(),
    segments=st.booleans(),
    num_layers=st.integers(1, 3),
    num_heads=st.integers(1, 3),
)
def test_the_count_is_the_modules_for_every_choice(
    positions: dict[str, object],
    norm: str,
    activation: str,
    tied: bool,
    segments: bool,
    num_layers: int,
    num_heads: int,
) -> None:
    config = ModelConfig.model_validate(
        {
            "num_layers": num_layers,
            "model_dim": 10,
            "num_heads": num_heads,
            "head_dim": 4,
            "ffn_dim": 13,
            "memory_tokens": 0,
            "positions": positions,
            "norm": norm,
            "activation": activation,
            "tie_embeddings": tied,
            "segment_encodings": segments,
        }
    )
    assert count_parameters(config, vocab_size=17).total == module_parameters(config, vocab_size=17)
