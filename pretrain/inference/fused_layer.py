"""A layer's pass over the rows of a decoding step as one C++ call, where a pass in PyTorch would cost what its many
calls cost.

Shapes: B lanes, Q rows, P passed rows, D model.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pretrain.inference.linear import MAX_FEW_ROWS, FrozenLinear
from pretrain.inference.reach import Reach
from pretrain.model.fused.operators import operators_are_there
from pretrain.model.positions.layer import LayerPositions
from pretrain.model.positions.transformer_xl import TransformerXLLayer

if TYPE_CHECKING:
    from pretrain.inference.layer import DecodingLayer, LayerCache


class FusedLayer:
    """`DecodingLayer.advance` for rows that stand in successive columns, at most MAX_FEW_ROWS of a lane.

    Products and what enters them are rounded to the weights' type where the plain layer rounds them.
    """

    def __init__(self, layer: "DecodingLayer") -> None:
        norms = layer.attention_norm, layer.feed_forward_norm
        tensors = {
            "attention_norm_2D": torch.stack([norms[0].weight_D, norms[0].bias_D]),
            "feed_forward_norm_2D": torch.stack([norms[1].weight_D, norms[1].bias_D]),
        }
        for name, linear in _linears(layer).items():
            tensors |= {f"{name}.{part}": tensor for part, tensor in _parts(linear).items()}
        if isinstance(layer.positions, TransformerXLLayer):
            tensors["distance_NH"] = layer.from_content_to_distance_NH.float()
        if layer.other_document_NH is not None:
            tensors["document_NH"] = layer.from_content_to_document_NH.float()
            tensors["other_document_NH"] = layer.other_document_NH
        make: Any = torch.classes.permcode_attention.DecodingLayer
        self._compiled = make(
            layer.num_heads,
            layer.block.pre_norm,
            norms[0].epsilon,
            layer.feed_forward.activation,
            MAX_FEW_ROWS,
            {name: tensor.detach() for name, tensor in tensors.items()},
        )
        self._takes_many_rows: bool = self._compiled.takes_many_rows()

    @staticmethod
    def of(layer: "DecodingLayer") -> "FusedLayer | None":
        """None for a layer that the operator does not know, or where there is none."""
        known = (
            layer.dtype in (torch.float32, torch.bfloat16)
            and layer.projection.weight_OI.device.type == "cpu"
            and type(layer.positions) in (LayerPositions, TransformerXLLayer)
            and layer.head_dim % 16 == 0
            and all(linear.weight_OI.shape[1] % 32 == 0 for linear in _linears(layer).values())
        )
        return FusedLayer(layer) if known and operators_are_there() else None

    def takes(self, rows_BQD: Tensor, reach: Reach) -> bool:
        """Whether `advance` can be used for these rows."""
        lanes, rows = rows_BQD.shape[:2]
        few = lanes * rows <= MAX_FEW_ROWS or (self._takes_many_rows and rows <= MAX_FEW_ROWS)
        return few and reach.first_column is not None

    def advance(self, rows_BQD: Tensor, cache: "LayerCache", reach: Reach, num_passed: int) -> Tensor:
        """The last P rows one layer up [B, P, D], after the content rows' keys and values are written."""
        assert reach.first_column is not None
        passed_BPD: Tensor = self._compiled.advance(
            rows_BQD.contiguous(),
            reach.num_content,
            num_passed,
            reach.first_column,
            cache.key_NBCH,
            cache.value_NBCH,
            cache.distances.keys_NRH,
            reach.num_keys,
            reach.span.high - reach.first_column,
            reach.hidden_BQK,
            reach.other_document_BQK,
        )
        return passed_BPD


def _linears(layer: "DecodingLayer") -> dict[str, FrozenLinear]:
    """The layer's products by the operator's names."""
    network = layer.feed_forward
    found = {"projection": layer.projection, "output": layer.output, "up": network.up, "down": network.down}
    return found if network.gate is None else found | {"gate": network.gate}


def _parts(linear: FrozenLinear) -> dict[str, Tensor]:
    parts = {"weight_OI": linear.weight_OI, "packed": linear.packed, "bias_O": linear.bias_O}
    return {name: part for name, part in parts.items() if part is not None}
