"""The kernels' dropout in tensor operations: which weights are kept, for comparisons.

Shapes: N heads, B lanes, Q rows, K keys.
"""

import torch
from torch import Tensor

_MASK = (1 << 32) - 1


def kept_weights(
    seed: int, dropout: float, heads: int, lanes: int, rows: int, keys: int, device: torch.device
) -> Tensor:
    """Return whether each weight is kept, bool [N, B, Q, K]: what `tile_parts.keeps` computes in the kernels."""
    lane_B, head_N, row_Q, key_K = (
        torch.arange(size, device=device, dtype=torch.int64) for size in (lanes, heads, rows, keys)
    )
    lane_and_head_NB = lane_B[None, :] * heads + head_N[:, None]
    row_key_Q = _mixed(row_Q * 0x9E3779B1 + (seed & _MASK))
    stream_NB = _mixed(lane_and_head_NB + ((seed >> 32) & _MASK))
    row_key_NBQ = _mixed(row_key_Q ^ stream_NB[:, :, None])
    random_NBQK = _mixed(row_key_NBQ[..., None] + key_K * 0x85EBCA77)
    return random_NBQK >= threshold_of(dropout)


def threshold_of(dropout: float) -> int:
    """Return the number below which a random 32-bit number drops a weight."""
    return min(round(dropout * 2**32), _MASK)


def _mixed(x: Tensor) -> Tensor:
    x = x & _MASK
    x = _product(x ^ (x >> 16), 0x21F0AAAD)
    x = _product(x ^ (x >> 15), 0xD35A2D97)
    return x ^ (x >> 15)


def _product(x: Tensor, factor: int) -> Tensor:
    """Return the low 32 bits of a product; 64-bit products wrap round, which leaves them right."""
    return (x * factor) & _MASK
