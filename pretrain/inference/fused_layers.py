"""A pass of few rows through all layers as one C++ call, because a pass in PyTorch is dominated by its many calls.

Shapes: B lanes, Q rows, P passed rows, D model.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pretrain.inference.linear import MAX_FEW_ROWS, FrozenLinear
from pretrain.inference.pass_layout import PassLayout
from pretrain.model.fused.operators import try_load_operators
from pretrain.model.positions import LayerPositions, TransformerXLLayer

if TYPE_CHECKING:
    from pretrain.inference.layer import DecodingLayer, LayerCache


_MOST_ROWS = 32
"""The most rows of a lane: from 64 on, PyTorch's attention is faster (benchmarks/results.md, "Passes of infilling")."""


class FusedLayers:
    """`DecodingLayer.advance` one after the other, for at most 32 rows of a lane.

    Products and what enters them are rounded to the weights' type where the plain layers round them.
    """

    def __init__(self, layers: Sequence["DecodingLayer"]) -> None:
        make: Any = torch.classes.permcode_attention.DecodingLayers
        self._compiled = make([_compiled(layer) for layer in layers])
        self._takes_many_rows: bool = self._compiled.takes_many_rows()

    @staticmethod
    def of(layers: Sequence["DecodingLayer"]) -> "FusedLayers | None":
        """Make it; None for layers that the operator does not support, or without compiled operators."""
        return FusedLayers(layers) if all(map(_is_known, layers)) and try_load_operators() else None

    def takes(self, rows_BQD: Tensor) -> bool:
        """Return whether `advance` can be used for these rows."""
        lanes, rows = rows_BQD.shape[:2]
        return lanes * rows <= MAX_FEW_ROWS or (self._takes_many_rows and rows <= _MOST_ROWS)

    def advance(
        self, rows_BQD: Tensor, caches: Sequence["LayerCache"], layout: PassLayout, num_passed: int
    ) -> Tensor:
        """Write the content rows' keys and values in every layer; return the last layer's last P rows [B, P, D]."""
        distances = [cache.distances.keys_NRH for cache in caches]
        passed_BPD: Tensor = self._compiled.advance(
            rows_BQD.contiguous(),
            layout.num_content,
            num_passed,
            layout.first_column or 0,
            [cache.key_NBCH for cache in caches],
            [cache.value_NBCH for cache in caches],
            [] if distances[0] is None else distances,
            layout.num_keys,
            layout.span.high,
            None if layout.column_BQ is None else layout.column_BQ.contiguous(),
            layout.hidden_BQK,
            layout.other_document_BQK,
        )
        return passed_BPD


def _is_known(layer: "DecodingLayer") -> bool:
    return (
        layer.dtype in (torch.float32, torch.bfloat16)
        and layer.projection.weight_OI.device.type == "cpu"
        and type(layer.positions) in (LayerPositions, TransformerXLLayer)
        and layer.head_dim % 16 == 0
        and all(linear.weight_OI.shape[1] % 32 == 0 for linear in _linears(layer).values())
    )


def _compiled(layer: "DecodingLayer") -> Any:
    norms = layer.attention_norm, layer.feed_forward_norm
    tensors = {
        "attention_norm_2D": torch.stack([norms[0].weight_D, norms[0].bias_D]),
        "feed_forward_norm_2D": torch.stack([norms[1].weight_D, norms[1].bias_D]),
    }
    for name, linear in _linears(layer).items():
        parts = {"weight_OI": linear.weight_OI, "packed": linear.packed, "bias_O": linear.bias_O}
        tensors |= {f"{name}.{part}": tensor for part, tensor in parts.items() if tensor is not None}
    if isinstance(layer.positions, TransformerXLLayer):
        tensors["distance_NH"] = layer.from_content_to_distance_NH.float()
    if layer.other_document_NH is not None:
        tensors["document_NH"] = layer.from_content_to_document_NH.float()
        tensors["other_document_NH"] = layer.other_document_NH
    make: Any = torch.classes.permcode_attention.DecodingLayer
    return make(
        layer.num_heads,
        layer.block.pre_norm,
        norms[0].epsilon,
        layer.feed_forward.activation,
        MAX_FEW_ROWS,
        {name: tensor.detach() for name, tensor in tensors.items()},
    )


def _linears(layer: "DecodingLayer") -> dict[str, FrozenLinear]:
    """Return the layer's linear layers by the operator's names."""
    network = layer.feed_forward
    found = {"projection": layer.projection, "output": layer.output, "up": network.up, "down": network.down}
    return found if network.gate is None else found | {"gate": network.gate}
