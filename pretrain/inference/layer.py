"""A layer for decoding: few rows at a time, projections in one product, keys and values cached by column.

Shapes: B lanes, T new content rows, Q rows (content, then predicted), C columns, K columns in use, N heads,
H head dim, D model, E = 3NH, R distances.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from pretrain.inference.gpu.choice import runs_few_rows_kernels
from pretrain.inference.linear import FrozenFeedForward, FrozenLinear
from pretrain.inference.pass_layout import PassLayout
from pretrain.model.attention_scores import Distances
from pretrain.model.block import Block
from pretrain.model.precision import at_least_float32


@dataclass(frozen=True)
class LayerCache:
    """One layer's keys and values [N, B, C, H], and those of every distance."""

    key_NBCH: Tensor
    value_NBCH: Tensor
    distances: Distances


class _RowNorm:
    """A LayerNorm with weights in the type of the rows, float32 at least."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        self.shape, self.epsilon = norm.normalized_shape, norm.eps
        self.weight_D, self.bias_D = at_least_float32(norm.weight), at_least_float32(norm.bias)

    def __call__(self, rows_BQD: Tensor) -> Tensor:
        return functional.layer_norm(rows_BQD, self.shape, self.weight_D, self.bias_D, self.epsilon)


def attention_dtype(weight: Tensor) -> torch.dtype:
    """Return the type of keys, values and scores for weights like this one.

    It is float32 for bfloat16 on a CPU, where batched products of bfloat16 copy all keys and values first.
    """
    if weight.dtype == torch.bfloat16 and weight.device.type == "cpu":
        return torch.float32
    return weight.dtype


_MAX_FEW_ROWS = 64
"""The most rows of a lane for kernels that read each key once per row; reading a text is a product of matrices."""


def _takes_few_rows(query_BQNH: Tensor, cache: LayerCache) -> bool:
    """Return whether the kernels for few rows serve these."""
    return (
        query_BQNH.shape[1] <= _MAX_FEW_ROWS
        and cache.distances.values_RH is None
        and runs_few_rows_kernels(query_BQNH)
    )


class DecodingLayer:
    """The weights of a `Block`, arranged for decoding; the results are the block's.

    Query, key and value are one product, which includes Transformer-XL's content bias and the scale H^-1/2.
    """

    def __init__(self, block: Block, activation: str) -> None:
        attention = block.attention
        self.block, self.positions = block, attention.positions
        self.attention_norm = _RowNorm(block.attention_norm)
        self.feed_forward_norm = _RowNorm(block.feed_forward_norm)
        self.num_heads, self.head_dim = attention.num_heads, attention.head_dim
        weight_DE = attention.query.weight
        scale = self.head_dim**-0.5
        zeros_NH = weight_DE.new_zeros(self.num_heads, self.head_dim)
        biases = self.positions.biases()
        content_bias_NH = zeros_NH if biases.content_NH is None else biases.content_NH * scale
        distance_bias_NH = zeros_NH if biases.distance_NH is None else biases.distance_NH * scale
        weight_ED = torch.cat([weight_DE * scale, attention.key.weight, attention.value.weight])
        bias_E = torch.cat([content_bias_NH.flatten(), weight_ED.new_zeros(2 * content_bias_NH.numel())])
        self.dtype = weight_ED.dtype
        self.attention_dtype = attention_dtype(weight_ED)
        self.projection = FrozenLinear(weight_ED, bias_E)
        self.output = FrozenLinear(attention.output.weight)
        self.feed_forward = FrozenFeedForward(block.feed_forward, activation)
        self.from_content_to_distance_NH = distance_bias_NH - content_bias_NH
        self.other_document_NH: Tensor | None = None
        if attention.segments is not None:
            # The score of the row's own document is left out for all keys: softmax does not depend on it.
            same_NH, other_NH = attention.segments.key_2NH.unbind(0)
            self.other_document_NH = (other_NH - same_NH).to(self.attention_dtype)
            self.from_content_to_document_NH = attention.segments.query_bias_NH * scale - content_bias_NH

    def advance(
        self, rows_BQD: Tensor, cache: LayerCache, layout: PassLayout, *, only_predicted: bool = False
    ) -> Tensor:
        """Write the content rows' keys and values; return the rows after this layer.

        With `only_predicted` only predicted rows are returned: nothing reads the last layer's content stream.
        """
        if only_predicted and layout.num_content:
            return self._end_content(rows_BQD, cache, layout)
        query_BQNH, key_BQNH, value_BQNH = self._projected(rows_BQD)
        num_content = layout.num_content
        if num_content:
            self._write(key_BQNH[:, :num_content], value_BQNH[:, :num_content], cache, layout)
        mixed_BQE = self._attend(query_BQNH, cache, layout)
        return self._finish(rows_BQD, mixed_BQE)

    def _end_content(self, rows_BQD: Tensor, cache: LayerCache, layout: PassLayout) -> Tensor:
        content_BTD, predicted_BPD = rows_BQD.tensor_split([layout.num_content], dim=1)
        _, key_BTNH, value_BTNH = self._projected(content_BTD)
        self._write(key_BTNH, value_BTNH, cache, layout)
        return (
            self.advance(predicted_BPD, cache, layout.predicted())
            if predicted_BPD.shape[1]
            else predicted_BPD
        )

    def _projected(self, rows_BQD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.block.pre_norm:
            rows_BQD = self.attention_norm(rows_BQD)
        fused_BQE = self.projection(rows_BQD.to(self.dtype))
        fused_BQE = fused_BQE.to(self.attention_dtype)
        fused_BQ3NH = fused_BQE.view(*rows_BQD.shape[:2], 3, self.num_heads, self.head_dim)
        query_BQNH, key_BQNH, value_BQNH = fused_BQ3NH.unbind(2)
        return query_BQNH, key_BQNH, value_BQNH

    def _write(self, key_BTNH: Tensor, value_BTNH: Tensor, cache: LayerCache, layout: PassLayout) -> None:
        key_BTNH = self.positions.with_positions(key_BTNH, layout.position_BQ[:, : layout.num_content])
        layout.write(cache.key_NBCH, key_BTNH.permute(2, 0, 1, 3))
        layout.write(cache.value_NBCH, value_BTNH.permute(2, 0, 1, 3))

    def _attend(self, query_BQNH: Tensor, cache: LayerCache, layout: PassLayout) -> Tensor:
        if _takes_few_rows(query_BQNH, cache):
            return self._attend_few_rows(query_BQNH, cache, layout)
        lanes, rows = query_BQNH.shape[:2]
        query_NBQH = self.positions.with_positions(query_BQNH, layout.position_BQ).permute(2, 0, 1, 3)
        key_NBKH = cache.key_NBCH[:, :, : layout.num_keys]
        value_NBKH = cache.value_NBCH[:, :, : layout.num_keys]
        score_NBQK = query_NBQH @ key_NBKH.transpose(-1, -2)
        if cache.distances.keys_NRH is not None:
            distance_BQNH = query_BQNH + self.from_content_to_distance_NH
            score_NBQK = score_NBQK + layout.distance_scores(
                distance_BQNH.permute(2, 0, 1, 3), cache.distances.keys_NRH
            )
        if layout.other_document_BQK is not None:
            more_NBQ = self._other_document_scores(query_BQNH)
            score_NBQK = score_NBQK + more_NBQ[..., None] * layout.other_document_BQK
        if layout.hidden_BQK is not None:
            score_NBQK = score_NBQK + layout.hidden_BQK.to(score_NBQK.dtype)
        weight_NBQK = functional.softmax(score_NBQK, dim=-1)
        if layout.sees_any_BQ1 is not None:
            weight_NBQK = weight_NBQK * layout.sees_any_BQ1
        mixed_NBQH = weight_NBQK @ value_NBKH
        if cache.distances.values_RH is not None:
            mixed_NBQH = mixed_NBQH + layout.distance_values(weight_NBQK, cache.distances.values_RH)
        return mixed_NBQH.permute(1, 2, 0, 3).reshape(lanes, rows, -1)

    def _other_document_scores(self, query_BQNH: Tensor) -> Tensor:
        """Return how much more a key of another document scores than one of the row's own."""
        assert self.other_document_NH is not None
        document_BQNH = query_BQNH + self.from_content_to_document_NH
        return torch.einsum("bqnh,nh->nbq", document_BQNH, self.other_document_NH)

    def _attend_few_rows(self, query_BQNH: Tensor, cache: LayerCache, layout: PassLayout) -> Tensor:
        from pretrain.inference.gpu.few_rows import attend_few_rows

        has_distances = cache.distances.keys_NRH is not None
        return attend_few_rows(
            self.positions.with_positions(query_BQNH, layout.position_BQ),
            query_BQNH + self.from_content_to_distance_NH if has_distances else None,
            None if layout.other_document_BQK is None else self._other_document_scores(query_BQNH),
            cache,
            layout,
        )

    def _finish(self, rows_BQD: Tensor, mixed_BQE: Tensor) -> Tensor:
        block = self.block
        attended_BQD = self.output(mixed_BQE.to(self.dtype))
        rows_BQD = self._add(self.attention_norm, rows_BQD, attended_BQD)
        entering_BQD = self.feed_forward_norm(rows_BQD) if block.pre_norm else rows_BQD
        update_BQD = self.feed_forward(entering_BQD.to(self.dtype))
        return self._add(self.feed_forward_norm, rows_BQD, update_BQD)

    def _add(self, norm: _RowNorm, rows_BQD: Tensor, update_BQD: Tensor) -> Tensor:
        rows_BQD = rows_BQD + update_BQD
        return rows_BQD if self.block.pre_norm else norm(rows_BQD)
