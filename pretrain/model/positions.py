"""Position encodings, chosen by `ModelConfig.positions`: what they add to the input, and what they do in every layer.

Absolute encodings are `InputPositions`, relative ones `LayerPositions`; the base classes do nothing.

Shapes: B lanes, X rows or keys, Q rows, N heads, H head dim, D model, R distances, C = 2c + 1 clipped distances.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cluster.errors import UserError
from pretrain.model.config import (
    AbsoluteLearnedPositions,
    AbsoluteSinusoidalPositions,
    ModelConfig,
    RotaryPositions,
    ShawPositions,
    TransformerXLPositions,
)
from pretrain.model.layout import DistanceSpan


@dataclass(frozen=True)
class QueryBiases:
    """Biases of the queries for keys, and of those for `distance_keys`; None for no bias."""

    content_NH: Tensor | None
    distance_NH: Tensor | None


class LayerPositions(nn.Module):
    """One layer's part of an encoding. The base class does nothing, as for absolute encodings."""

    def with_positions(self, heads_BXNH: Tensor, position_BX: Tensor) -> Tensor:
        """Return queries or keys with their own position encoded."""
        return heads_BXNH

    def biases(self) -> QueryBiases:
        """Return the biases of all queries."""
        return QueryBiases(None, None)

    def distance_keys(self, span: DistanceSpan, table_RD: Tensor | None) -> Tensor | None:
        """Return a key [N, R, H] for every distance of the span; None for an encoding without."""
        return None

    def distance_values(self, span: DistanceSpan) -> Tensor | None:
        """Return a value [R, H] for every distance of the span, for all heads; None for an encoding without."""
        return None


_BASE = 10_000.0


def sinusoids(position_X: Tensor, model_dim: int) -> Tensor:
    """Return sines, then cosines, of positions or distances, float64 [X, D]."""
    frequency = _BASE ** (
        -torch.arange(0.0, model_dim, 2.0, device=position_X.device, dtype=torch.float64) / model_dim
    )
    angle = position_X.double()[..., None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


def sinusoid_table(span: DistanceSpan, model_dim: int, device: torch.device) -> Tensor:
    """Return the sinusoids of the span's distances, the highest distance first, float64 [R, D]."""
    return sinusoids(torch.arange(span.high, span.low - 1, -1, device=device), model_dim)


class TransformerXLLayer(LayerPositions):
    """Transformer-XL (Dai et al. 2019, section 3.3; XLNet's bidirectional table of distances).

    score(i, j) = (q_i + u) k_j + (q_i + v) W r_(i-j): u are content biases, v position biases.
    """

    def __init__(self, model_dim: int, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.projection = nn.Linear(model_dim, num_heads * head_dim, bias=False)
        self.content_bias_NH = nn.Parameter(torch.empty(num_heads, head_dim))
        self.position_bias_NH = nn.Parameter(torch.empty(num_heads, head_dim))

    def biases(self) -> QueryBiases:
        """Return u and v."""
        return QueryBiases(self.content_bias_NH, self.position_bias_NH)

    def distance_keys(self, span: DistanceSpan, table_RD: Tensor | None) -> Tensor:
        """Return W r for every distance, shared by all lanes."""
        assert table_RD is not None
        projected: Tensor = self.projection(table_RD)
        return projected.view(len(span), self.num_heads, -1).transpose(0, 1)


class ShawLayer(LayerPositions):
    """Learned vectors per clipped distance (Shaw et al. 2018, equations 3 and 4; in the seed documents 4 and 5).

    score(i, j) = q_i (k_j + a^K_clip(i-j)), output = sum of weight * (v_j + a^V_clip(i-j)).

    The vectors of a layer serve all heads; row 0 is distance +c, the last row -c.
    """

    def __init__(self, max_distance_tokens: int, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.max_distance_tokens, self.num_heads = max_distance_tokens, num_heads
        self.key_CH = nn.Parameter(torch.empty(2 * max_distance_tokens + 1, head_dim))
        self.value_CH = nn.Parameter(torch.empty(2 * max_distance_tokens + 1, head_dim))

    def _rows(self, span: DistanceSpan) -> Tensor:
        clip = self.max_distance_tokens
        distance_R = torch.arange(span.high, span.low - 1, -1, device=self.key_CH.device)
        return clip - distance_R.clamp(-clip, clip)

    def distance_keys(self, span: DistanceSpan, table_RD: Tensor | None) -> Tensor:
        """Return a^K of every distance, the same for all heads."""
        return self.key_CH[self._rows(span)].expand(self.num_heads, -1, -1)

    def distance_values(self, span: DistanceSpan) -> Tensor:
        """Return a^V of every distance."""
        return self.value_CH[self._rows(span)]


class RotaryLayer(LayerPositions):
    """Rotary positions (Su et al. 2021, section 3.2); the halves of a head's dimensions form the pairs.

    Queries and keys are rotated, so that their product depends on the difference of their positions alone.
    """

    def __init__(self, head_dim: int, base: float) -> None:
        super().__init__()
        self.head_dim, self.base = head_dim, base

    def with_positions(self, heads_BXNH: Tensor, position_BX: Tensor) -> Tensor:
        """Return heads rotated by position * base^(-2i/H) in pair i."""
        pair = torch.arange(0.0, self.head_dim, 2.0, device=heads_BXNH.device, dtype=torch.float64)
        angle = position_BX.double()[..., None] * self.base ** (-pair / self.head_dim)
        cos, sin = (part[:, :, None].to(heads_BXNH.dtype) for part in (angle.cos(), angle.sin()))
        first, second = heads_BXNH.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class InputPositions(nn.Module):
    """The vectors that an encoding adds to the input; the base class adds nothing."""

    def vectors(self, position_BX: Tensor, extent: int) -> Tensor | None:
        """Return a vector [B, X, D] for each position, or None."""
        return None


class SinusoidalInput(InputPositions):
    """Sines, then cosines, of the position (Vaswani et al. 2017, section 3.5)."""

    def __init__(self, model_dim: int) -> None:
        super().__init__()
        self.model_dim = model_dim

    def vectors(self, position_BX: Tensor, extent: int) -> Tensor:
        """Return the sinusoids [B, X, D] of the positions."""
        return sinusoids(position_BX, self.model_dim)


class LearnedInput(InputPositions):
    """A vector per position; there are `max_positions` of them."""

    def __init__(self, model_dim: int, max_positions: int) -> None:
        super().__init__()
        self.position_XD = nn.Parameter(torch.empty(max_positions, model_dim))

    def vectors(self, position_BX: Tensor, extent: int) -> Tensor:
        """Return learned vectors [B, X, D]. Raises UserError for a text longer than the model has positions."""
        if extent > len(self.position_XD):
            raise UserError(
                f"a text of {extent} tokens is longer than the {len(self.position_XD)} positions of this model "
                "(model.positions.max_positions): use shorter text"
            )
        return self.position_XD[position_BX]


def layer_positions(config: ModelConfig) -> LayerPositions:
    """Return one layer's part of the encoding that the config chooses."""
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
    """Return the input's part of the encoding that the config chooses."""
    match config.positions:
        case AbsoluteSinusoidalPositions():
            return SinusoidalInput(config.model_dim)
        case AbsoluteLearnedPositions(max_positions=max_positions):
            return LearnedInput(config.model_dim, max_positions)
        case _:
            return InputPositions()
