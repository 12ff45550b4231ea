"""Models small enough for float64 and slow references."""

import torch

from pretrain.model.config import (
    AbsoluteLearnedPositions,
    AbsoluteSinusoidalPositions,
    ModelConfig,
    PositionsConfig,
    RotaryPositions,
    ShawPositions,
    TransformerXLPositions,
)
from pretrain.model.transformer import TwoStreamTransformer

RELATIVE: tuple[PositionsConfig, ...] = (
    TransformerXLPositions(),
    ShawPositions(max_distance_tokens=5),
    RotaryPositions(),
)
ABSOLUTE: tuple[PositionsConfig, ...] = (
    AbsoluteSinusoidalPositions(),
    AbsoluteLearnedPositions(max_positions=64),
)
VOCAB = 13


def small_model(
    positions: PositionsConfig | None = None,
    norm: str = "post",
    memory_tokens: int = 6,
    activation: str = "gelu",
    vocab_size: int = VOCAB,
    segment_encodings: bool = False,
    seed: int = 0,
    context: str = "bidirectional",
) -> TwoStreamTransformer:
    """Three layers in float64, without memory where positions are absolute."""
    torch.manual_seed(seed)
    positions = positions or TransformerXLPositions()
    config = ModelConfig(
        num_layers=3,
        model_dim=8,
        num_heads=2,
        head_dim=4,
        ffn_dim=12,
        memory_tokens=0 if positions.kind.startswith("absolute") else memory_tokens,
        dropout=0.0,
        norm=norm,  # type: ignore[arg-type]
        activation=activation,  # type: ignore[arg-type]
        positions=positions,
        segment_encodings=segment_encodings,
        context=context,  # type: ignore[arg-type]
    )
    model = TwoStreamTransformer(config, vocab_size).double().eval()
    for parameter in model.parameters():  # no zeros or ones that could hide a missing term
        torch.nn.init.normal_(parameter, std=0.5)
    return model
