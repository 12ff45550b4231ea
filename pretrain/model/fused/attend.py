"""Attention with its softmax in one pass."""

from torch import Tensor

from pretrain.model.attend import Distances, Queries
from pretrain.model.places import Sight


def fusable(queries: Queries, distances: Distances, dropout: float) -> bool:
    """Whether `attend_fused` can be used for these."""
    return False


def attend_fused(
    queries: Queries, key_NBKH: Tensor, value_NBKH: Tensor, distances: Distances, sight: Sight
) -> Tensor:
    """`attend` without dropout, faster."""
    raise NotImplementedError
