"""A layer's pass over few rows as one C++ call, where a pass in PyTorch would cost what its many calls cost.

Shapes: B lanes, Q rows, P passed rows, D model.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pretrain.inference.linear import MAX_FEW_ROWS
from pretrain.inference.reach import Reach
from pretrain.model.feed_forward import FeedForward, SwiGLU
from pretrain.model.fused.operators import operators_are_there
from pretrain.model.positions.layer import LayerPositions
from pretrain.model.positions.transformer_xl import TransformerXLLayer

if TYPE_CHECKING:
    from pretrain.inference.layer import DecodingLayer, LayerCache


class FusedLayer:
    """`DecodingLayer.advance` for at most MAX_FEW_ROWS rows that stand in successive columns.

    Products and what enters them are rounded to the weights' type where the plain layer rounds them.
    """

    def __init__(self, layer: "DecodingLayer", activation: str) -> None:
        norms = layer.attention_norm, layer.feed_forward_norm
        tensors = {
            "projection_ED": layer.projection.weight_OI,
            "projection_E": layer.projection.bias_O,
            "output_DI": layer.output.weight_OI,
            "attention_norm_2D": torch.stack([norms[0].weight_D, norms[0].bias_D]),
            "feed_forward_norm_2D": torch.stack([norms[1].weight_D, norms[1].bias_D]),
            **_of_feed_forward(layer.block.feed_forward),
        }
        if isinstance(layer.positions, TransformerXLLayer):
            tensors["distance_NH"] = layer.from_content_to_distance_NH.float()
        if layer.other_document_NH is not None:
            tensors["document_NH"] = layer.from_content_to_document_NH.float()
            tensors["other_document_NH"] = layer.other_document_NH
        present = {name: one.detach().contiguous() for name, one in tensors.items() if one is not None}
        make: Any = torch.classes.permcode_attention.DecodingLayer
        self._compiled = make(layer.num_heads, layer.block.pre_norm, norms[0].epsilon, activation, present)

    @staticmethod
    def of(layer: "DecodingLayer", activation: str) -> "FusedLayer | None":
        """None for a layer that the operator does not know, or where there is none."""
        tensors = _of_feed_forward(layer.block.feed_forward)
        inputs = [layer.projection.weight_OI, layer.output.weight_OI, tensors["down_DF"]]
        known = (
            layer.dtype in (torch.float32, torch.bfloat16)
            and layer.projection.weight_OI.device.type == "cpu"
            and type(layer.positions) in (LayerPositions, TransformerXLLayer)
            and layer.head_dim % 16 == 0
            and all(weight_OI is not None and weight_OI.shape[1] % 32 == 0 for weight_OI in inputs)
        )
        return FusedLayer(layer, activation) if known and operators_are_there() else None

    def takes(self, rows_BQD: Tensor, reach: Reach) -> bool:
        """Whether `advance` can be used for these rows."""
        return rows_BQD.shape[0] * rows_BQD.shape[1] <= MAX_FEW_ROWS and reach.first_column is not None

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


def _of_feed_forward(network: torch.nn.Module) -> dict[str, Tensor | None]:
    if isinstance(network, SwiGLU):
        return {
            "gate_FD": network.gate.weight,
            "up_FD": network.up.weight,
            "down_DF": network.down.weight,
        }
    assert isinstance(network, FeedForward)
    return {
        "up_FD": network.up.weight,
        "up_F": network.up.bias,
        "down_DF": network.down.weight,
        "down_D": network.down.bias,
    }
