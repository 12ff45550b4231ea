"""A small problem that the kernels for few rows must solve as plain operations do, before a process relies on them.

Shapes: B lanes, Q rows, K columns in use, C columns, N heads, H head dim, R distances.
"""

import torch
from torch import Tensor
from torch.nn import functional

from pretrain.inference.gpu.few_rows import attend_few_rows
from pretrain.inference.layer import LayerCache
from pretrain.inference.pass_layout import PassLayout
from pretrain.model.attention_scores import Distances
from pretrain.model.layout import DistanceSpan

_HEADS, _LANES, _ROWS, _COLUMNS, _UNUSED = 2, 2, 3, 200, 9
_TOLERANCES = {torch.bfloat16: 0.02, torch.float32: 1e-4}
"""Of the largest number of the result."""


def deviation(device: torch.device, dtype: torch.dtype, head_dim: int) -> str:
    """Return in one line how the kernels' result differs from the plain operations'; empty if it does not.

    Raises what Triton raises for a kernel that does not compile.
    """
    draw = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=draw).to(device, dtype)

    span = DistanceSpan(low=1 - _COLUMNS, high=_COLUMNS)
    cache_shape = (_HEADS, _LANES, _COLUMNS, head_dim)
    cache = LayerCache(
        normal(*cache_shape), normal(*cache_shape), Distances(normal(_HEADS, len(span), head_dim), None)
    )
    query_BQNH, distance_query_BQNH = normal(2, _LANES, _ROWS, _HEADS, head_dim) * head_dim**-0.5
    document_NBQ = normal(_HEADS, _LANES, _ROWS)
    num_keys = _COLUMNS - _UNUSED
    visible_BQK, other_BQK = (torch.rand(2, _LANES, _ROWS, num_keys, generator=draw) < 0.7).to(device)
    visible_BQK[0, 0] = False
    column_BQ = torch.randint(_COLUMNS, (_LANES, _ROWS), generator=draw).to(device)
    hidden_BQK = torch.zeros(visible_BQK.shape, device=device).masked_fill(
        ~visible_BQK, torch.finfo(dtype).min
    )
    sees_any_BQ1 = visible_BQK.any(dim=-1, keepdim=True)
    layout = PassLayout(
        span, 0, num_keys, column_BQ, hidden_BQK.to(dtype), sees_any_BQ1, None, column_BQ, other_BQK
    )
    found = attend_few_rows(query_BQNH, distance_query_BQNH, document_NBQ, cache, layout).float()
    expected = _plain(query_BQNH.float(), distance_query_BQNH.float(), document_NBQ.float(), cache, layout)
    error = float((found - expected).abs().max() / expected.abs().max())
    return "" if error <= _TOLERANCES[dtype] else f"results differ by {error:.2g} of their largest number"


def _plain(
    query_BQNH: Tensor,
    distance_query_BQNH: Tensor,
    document_NBQ: Tensor,
    cache: LayerCache,
    layout: PassLayout,
) -> Tensor:
    assert cache.distances.keys_NRH is not None
    assert layout.other_document_BQK is not None
    assert layout.hidden_BQK is not None
    assert layout.sees_any_BQ1 is not None
    lanes, rows = query_BQNH.shape[:2]
    key_NBKH, value_NBKH = (x[:, :, : layout.num_keys].float() for x in (cache.key_NBCH, cache.value_NBCH))
    by_distance_NBQH = distance_query_BQNH.permute(2, 0, 1, 3)
    score_NBQK = (
        query_BQNH.permute(2, 0, 1, 3) @ key_NBKH.transpose(-1, -2)
        + layout.distance_scores(by_distance_NBQH, cache.distances.keys_NRH.float())
        + document_NBQ[..., None] * layout.other_document_BQK
        + layout.hidden_BQK.float()
    )
    mixed_NBQH = functional.softmax(score_NBQK, dim=-1) * layout.sees_any_BQ1 @ value_NBKH
    return mixed_NBQH.permute(1, 2, 0, 3).reshape(lanes, rows, -1)
