"""From the config's choice to modules."""

from pretrain.model.config import (
    AbsoluteLearnedPositions,
    AbsoluteSinusoidalPositions,
    ModelConfig,
    RotaryPositions,
    ShawPositions,
    TransformerXLPositions,
)
from pretrain.model.positions.absolute import InputPositions, LearnedInput, SinusoidalInput
from pretrain.model.positions.layer import LayerPositions
from pretrain.model.positions.rotary import RotaryLayer
from pretrain.model.positions.shaw import ShawLayer
from pretrain.model.positions.transformer_xl import TransformerXLLayer


def layer_positions(config: ModelConfig) -> LayerPositions:
    """One layer's part of the chosen encoding."""
    match config.positions:
        case TransformerXLPositions():
            return TransformerXLLayer(config.model_dim, config.num_heads, config.head_dim)
        case ShawPositions(max_distance_tokens=max_distance_tokens):
            return ShawLayer(max_distance_tokens, config.num_heads, config.head_dim)
        case RotaryPositions(base=base):
            return RotaryLayer(config.head_dim, base)
        case _:
            return LayerPositions()


def input_positions(config: ModelConfig) -> InputPositions:
    """The input's part of the chosen encoding."""
    match config.positions:
        case AbsoluteSinusoidalPositions():
            return SinusoidalInput(config.model_dim)
        case AbsoluteLearnedPositions(max_positions=max_positions):
            return LearnedInput(config.model_dim, max_positions)
        case _:
            return InputPositions()
