"""The kernels' launches: from tensors to the arguments of each kernel.

Shapes: N heads, B lanes, Q rows, K keys, X rows padded, Y programs, H head dim, R distances, G sets of lanes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pretrain.model.fused.gpu.backward_distances import distances_backward
from pretrain.model.fused.gpu.backward_keys import keys_backward
from pretrain.model.fused.gpu.backward_rows import rows_backward
from pretrain.model.fused.gpu.dropout import threshold_of
from pretrain.model.fused.gpu.forward import attend_forward
from pretrain.model.fused.gpu.tables import MaskTables
from pretrain.model.fused.gpu.tile_sizes import MAX_RUNS, Kernel, KernelTile, padded_head_dim
from pretrain.model.fused.gpu.work import empty_heads, num_sets_of_lanes


@dataclass(frozen=True)
class Problem:
    """The inputs of a call; steps within a head are 1."""

    query_NBQH: Tensor
    content_bias_NH: Tensor | None
    distance_bias_NH: Tensor | None
    document_NBQ2: Tensor | None
    key_NBKH: Tensor
    value_NBKH: Tensor
    distance_NRH: Tensor | None
    tables: MaskTables
    tiles: Mapping[Kernel, KernelTile]
    scale: float
    dropout: float
    seed: int

    def queries(self) -> dict[str, Any]:
        """Return the queries and biases, for the kernels that read them; what is missing is never read."""
        none = self.query_NBQH
        return {
            "query": self.query_NBQH,
            "scale": self.scale,
            "content_bias": none if self.content_bias_NH is None else self.content_bias_NH,
            "distance_bias": none if self.distance_bias_NH is None else self.distance_bias_NH,
            "HAS_CONTENT_BIAS": self.content_bias_NH is not None,
            "HAS_DISTANCE_BIAS": self.distance_bias_NH is not None,
            **strides("query", "nbq", self.query_NBQH),
        }

    def arguments(self, kernel: Kernel) -> dict[str, Any]:
        """Return what all kernels get, with the tiles of this one."""
        none = self.query_NBQH
        rows, columns, of_tiles = self.tables.rows, self.tables.columns, self.tables.of_kernels[kernel]
        tile, spread = self.tiles[kernel].tile, self.tiles[kernel].spread
        head_dim = self.query_NBQH.shape[-1]
        return {
            "key": self.key_NBKH,
            "value": self.value_NBKH,
            "distance": none if self.distance_NRH is None else self.distance_NRH,
            "document_score": none if self.document_NBQ2 is None else self.document_NBQ2,
            **strides("key", "nbk", self.key_NBKH),
            **strides("value", "nbk", self.value_NBKH),
            **strides("distance", "nr", self.distance_NRH),
            **strides("document", "nbq2", self.document_NBQ2),
            "row_index": rows.index_BX,
            "row_shift": rows.shift_BX,
            "row_group_code": rows.group_code_BX,
            "row_num_codes": rows.num_codes_BX,
            "row_document": rows.document_BX,
            "key_index": columns.index_BC,
            "key_code": columns.code_BC,
            "key_document": columns.document_BC,
            "tile_shift": of_tiles.shift_BY,
            "tile_halves": of_tiles.halves_BY,
            "runs": of_tiles.runs_BYS2,
            "num_runs": of_tiles.num_runs_BY,
            "num_rows_padded": rows.index_BX.shape[1],
            "num_columns": columns.index_BC.shape[1],
            "num_distances": 0 if self.distance_NRH is None else self.distance_NRH.shape[1],
            "seed": self.seed,
            "threshold": threshold_of(self.dropout),
            "keep_scale": 1.0 / (1.0 - self.dropout),
            "HEAD_DIM": head_dim,
            "H": padded_head_dim(head_dim),
            "ROWS": tile.rows,
            "COLUMNS": tile.columns,
            "MAX_RUNS": MAX_RUNS,
            "HAS_DOCUMENTS": self.document_NBQ2 is not None,
            "HAS_DROPOUT": self.dropout > 0.0,
            "WIDE": spread == "wide",
            "PRECISION": _precision_of(self.query_NBQH),
            "num_warps": tile.warps,
            "num_stages": tile.stages,
        }

    @property
    def has_distances(self) -> bool:
        """Whether scores depend on distances."""
        return self.distance_NRH is not None


def _precision_of(queries: Tensor) -> str:
    if queries.device.type == "cpu":
        return "interpreted"
    return "tf32x3" if queries.dtype == torch.float32 else "ieee"


def strides(name: str, letters: str, tensor: Tensor | None) -> dict[str, int]:
    """Return a tensor's strides as arguments `NAME_stride_LETTER`, zeros for a missing one."""
    steps = (0,) * len(letters) if tensor is None else tensor.stride()
    return {f"{name}_stride_{letter}": step for letter, step in zip(letters, steps, strict=False)}


def launch_forward(problem: Problem) -> tuple[Tensor, Tensor]:
    """Return the output [N, B, Q, H] and the logarithm of every row's sum of weights [B, N, X]."""
    heads, lanes, rows, head_dim = problem.query_NBQH.shape
    num_padded = problem.tables.rows.index_BX.shape[1]
    mixed_NBQH = empty_heads(heads, lanes, rows, head_dim, problem.query_NBQH)
    log_sum_BNX = problem.query_NBQH.new_empty(lanes, heads, num_padded, dtype=torch.float32)
    attend_forward[(num_padded // problem.tiles["forward"].tile.rows, heads, lanes)](
        output=mixed_NBQH,
        log_sum=log_sum_BNX,
        HAS_DISTANCES=problem.has_distances,
        **strides("output", "nbq", mixed_NBQH),
        **problem.queries(),
        **problem.arguments("forward"),
    )
    return mixed_NBQH, log_sum_BNX


@dataclass(frozen=True)
class Gradients:
    """The gradients of a problem's inputs; None for those that it lacks."""

    query_NBQH: Tensor
    content_bias_NH: Tensor | None
    distance_bias_NH: Tensor | None
    document_NBQ2: Tensor | None
    key_NBKH: Tensor
    value_NBKH: Tensor
    distance_NRH: Tensor | None


def launch_backward(
    problem: Problem, mixed_NBQH: Tensor, log_sum_BNX: Tensor, gradient_NBQH: Tensor
) -> Gradients:
    """Return the gradients, given the output, its logarithms and its gradient."""
    shared = of_backward_kernels(problem, log_sum_BNX, gradient_NBQH)
    # The first one also writes what the others read.
    of_query_NBQH, of_document_NBQ2 = launch_rows(problem, mixed_NBQH, shared)
    of_key_NBKH, of_value_NBKH, of_content_NH = launch_keys(problem, shared)
    of_distance_NRH = of_bias_NH = None
    if problem.has_distances:
        of_distance_NRH, of_bias_NH = launch_distances(problem, shared)
    return Gradients(
        of_query_NBQH,
        of_content_NH,
        of_bias_NH,
        of_document_NBQ2,
        of_key_NBKH,
        of_value_NBKH,
        of_distance_NRH,
    )


def of_backward_kernels(problem: Problem, log_sum_BNX: Tensor, gradient_NBQH: Tensor) -> dict[str, Any]:
    """Return the arguments that all kernels of the backward pass share, with room for what the first one writes."""
    lanes, heads, num_padded = log_sum_BNX.shape
    of_keys_BNXH = problem.query_NBQH.new_empty(lanes, heads, num_padded, problem.query_NBQH.shape[-1])
    return {
        "of_keys": of_keys_BNXH,
        "of_distances": torch.empty_like(of_keys_BNXH) if problem.has_distances else of_keys_BNXH,
        "output_gradient": gradient_NBQH,
        "log_sum": log_sum_BNX,
        "row_dot": torch.empty_like(log_sum_BNX),
        **strides("gradient", "nbq", gradient_NBQH),
    }


def launch_rows(
    problem: Problem, mixed_NBQH: Tensor, shared: Mapping[str, Any]
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of queries and of the documents' scores; write what the other kernels read."""
    query_NBQH = problem.query_NBQH
    heads, lanes, rows, head_dim = query_NBQH.shape
    unused = shared["row_dot"]
    of_query_NBQH = empty_heads(heads, lanes, rows, head_dim, query_NBQH)
    of_document_NBQ2 = None
    if problem.document_NBQ2 is not None:
        of_document_NBQ2 = problem.document_NBQ2.new_empty(problem.document_NBQ2.shape)
    rows_backward[(unused.shape[-1] // problem.tiles["rows"].tile.rows, heads, lanes)](
        output=mixed_NBQH,
        query_gradient=of_query_NBQH,
        document_gradient=unused if of_document_NBQ2 is None else of_document_NBQ2,
        num_rows=rows,
        HAS_DISTANCES=problem.has_distances,
        **strides("output", "nbq", mixed_NBQH),
        **shared,
        **problem.queries(),
        **problem.arguments("rows"),
    )
    return of_query_NBQH, of_document_NBQ2


def launch_keys(problem: Problem, shared: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of keys, values and the content bias."""
    heads, lanes, num_keys, head_dim = problem.key_NBKH.shape
    of_key_NBKH, of_value_NBKH = (
        empty_heads(heads, lanes, num_keys, head_dim, problem.key_NBKH) for _ in range(2)
    )
    num_tiles = problem.tables.columns.index_BC.shape[1] // problem.tiles["keys"].tile.columns
    has_bias = problem.content_bias_NH is not None
    part_NBYH = shared["row_dot"].new_empty((heads, lanes, num_tiles, head_dim) if has_bias else 0)
    keys_backward[(num_tiles, heads, lanes)](
        key_gradient=of_key_NBKH,
        value_gradient=of_value_NBKH,
        content_sum=part_NBYH,
        HAS_DISTANCES=problem.has_distances,
        HAS_CONTENT_BIAS=has_bias,
        **strides("result", "nbk", of_key_NBKH),
        **shared,
        **problem.arguments("keys"),
    )
    of_content_NH = part_NBYH.sum(dim=(1, 2)).to(of_key_NBKH.dtype) if has_bias else None
    return of_key_NBKH, of_value_NBKH, of_content_NH


def launch_distances(problem: Problem, shared: Mapping[str, Any]) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of the distances' keys and of their bias."""
    assert problem.distance_NRH is not None
    heads, num_distances, head_dim = problem.distance_NRH.shape
    lanes, dtype = problem.query_NBQH.shape[1], problem.distance_NRH.dtype
    num_chunks = -(-num_distances // problem.tiles["distances"].tile.columns)
    num_sets = num_sets_of_lanes(lanes, num_chunks * heads)
    has_bias = problem.distance_bias_NH is not None
    part_GNRH = shared["row_dot"].new_empty(num_sets, heads, num_distances, head_dim)
    part_GNYH = part_GNRH.new_empty((num_sets, heads, num_chunks, head_dim) if has_bias else 0)
    distances_backward[(num_chunks, heads, num_sets)](
        distance_sum=part_GNRH,
        bias_sum=part_GNYH,
        num_lanes=lanes,
        HAS_DISTANCE_BIAS=has_bias,
        **shared,
        **problem.arguments("distances"),
    )
    of_bias_NH = part_GNYH.sum(dim=(0, 2)).to(dtype) if has_bias else None
    return part_GNRH.sum(dim=0).to(dtype), of_bias_NH
