"""The layout of one pass of decoding: the columns of its rows, and the mask of columns that they see.

A *column* is an index into the cache. Columns are consecutive as positions are, so the distance of two tokens is the
difference of their columns, and scores by distance become scores by key through a relative shift.

Shapes: B lanes, T content rows, P predicted rows, Q = T + P rows, C columns, K columns in use, N heads, H head dim,
R distances.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from pretrain.model.layout import DistanceSpan


@dataclass(frozen=True)
class PassRows:
    """The rows of a pass: T tokens that are written, then P columns that are predicted.

    A row sees the tokens of this pass whose ranks are below its bound, and those of earlier passes.
    """

    token_BT: Tensor
    column_BQ: Tensor
    rank_BT: Tensor
    bound_BQ: Tensor

    @property
    def num_content(self) -> int:
        """T."""
        return self.token_BT.shape[1]

    @property
    def num_predicted(self) -> int:
        """P."""
        return self.column_BQ.shape[1] - self.num_content


@dataclass(frozen=True)
class PassLayout:
    """Content rows followed by predicted rows; the same for every layer.

    `first_column` is set if the rows of all lanes have the same consecutive columns, `column_BQ` otherwise.
    `hidden_BQK` is added to scores (0, or the lowest number for a masked key; Q is 1 if all rows see the same keys);
    None if every row sees every key. `sees_any_BQ1` is None if every row sees some key. `other_document_BQK` marks
    keys of another document than the row's (Q as before); None if there are none or the model does not compare
    documents.
    """

    span: DistanceSpan
    num_content: int
    num_keys: int
    position_BQ: Tensor
    hidden_BQK: Tensor | None
    sees_any_BQ1: Tensor | None
    first_column: int | None
    column_BQ: Tensor | None
    other_document_BQK: Tensor | None

    @cached_property
    def columns_BQ(self) -> Tensor:
        """The column of every row, int64 [B, Q]."""
        if self.column_BQ is not None:
            return self.column_BQ
        assert self.first_column is not None
        lanes, rows = self.position_BQ.shape
        row_Q = torch.arange(self.first_column, self.first_column + rows, device=self.position_BQ.device)
        return row_Q.expand(lanes, -1)

    def predicted(self) -> "PassLayout":
        """Return the layout of the predicted rows alone."""
        if self.num_content == 0:
            return self
        first = self.num_content
        return replace(
            self,
            num_content=0,
            position_BQ=self.position_BQ[:, first:],
            hidden_BQK=_rows_from(first, self.hidden_BQK),
            sees_any_BQ1=_rows_from(first, self.sees_any_BQ1),
            first_column=None if self.first_column is None else self.first_column + first,
            column_BQ=None if self.column_BQ is None else self.column_BQ[:, first:],
            other_document_BQK=_rows_from(first, self.other_document_BQK),
        )

    def write(self, cache_NBCH: Tensor, new_NBTH: Tensor) -> None:
        """Write the content rows' keys or values into their columns."""
        if self.first_column is not None:
            cache_NBCH[:, :, self.first_column : self.first_column + self.num_content] = new_NBTH
            return
        assert self.column_BQ is not None
        column_BT = self.column_BQ[:, : self.num_content]
        lane_B1 = torch.arange(len(column_BT), device=column_BT.device)[:, None]
        cache_NBCH[:, lane_B1, column_BT] = new_NBTH

    def distance_scores(self, query_NBQH: Tensor, keys_NRH: Tensor) -> Tensor:
        """Return the scores [N, B, Q, K] of queries and the keys of distances, after the relative shift."""
        num_heads, lanes, rows, _ = query_NBQH.shape
        if self.first_column is None:
            score_NXR = query_NBQH.reshape(num_heads, lanes * rows, -1) @ keys_NRH.transpose(-1, -2)
            index_NBQK = self._distance_index_BQK().expand(num_heads, -1, -1, -1)
            return score_NXR.view(num_heads, lanes, rows, -1).gather(-1, index_NBQK)
        first = self._first_distance_index(rows)
        keys_NXH = keys_NRH[:, first : first + self.num_keys + rows - 1]
        score_NXX = query_NBQH.reshape(num_heads, lanes * rows, -1) @ keys_NXH.transpose(-1, -2)
        return self._relative_shift(score_NXX.view(num_heads, lanes, rows, -1))

    def distance_values(self, weight_NBQK: Tensor, values_RH: Tensor) -> Tensor:
        """Return the weighted sums of the values of distances, [N, B, Q, H]."""
        num_heads, lanes, rows, _ = weight_NBQK.shape
        if self.first_column is None:
            weight_NBQR = weight_NBQK.new_zeros(num_heads, lanes, rows, len(values_RH))
            index_NBQK = self._distance_index_BQK().expand(num_heads, -1, -1, -1)
            return weight_NBQR.scatter_(-1, index_NBQK, weight_NBQK) @ values_RH
        first = self._first_distance_index(rows)
        values_XH = values_RH[first : first + self.num_keys + rows - 1]
        weight_NBQX = weight_NBQK.new_zeros(num_heads, lanes, rows, len(values_XH))
        self._relative_shift(weight_NBQX).copy_(weight_NBQK)
        return weight_NBQX @ values_XH

    def _first_distance_index(self, rows: int) -> int:
        """Return the index of the last query and first key in distance tables, which run from high to low."""
        assert self.first_column is not None
        return self.span.high - (self.first_column + rows - 1)

    def _relative_shift(self, score_NBQX: Tensor) -> Tensor:
        """Return a view [N, B, Q, K] of contiguous [N, B, Q, K + Q - 1]: each row begins one element earlier."""
        num_heads, lanes, rows, wide = score_NBQX.shape
        return score_NBQX.as_strided(
            (num_heads, lanes, rows, self.num_keys),
            (lanes * rows * wide, rows * wide, max(0, wide - 1), 1),
            score_NBQX.storage_offset() + rows - 1,
        )

    def _distance_index_BQK(self) -> Tensor:
        assert self.column_BQ is not None
        key_K = torch.arange(self.num_keys, device=self.column_BQ.device)
        return self.span.high - (self.column_BQ[:, :, None] - key_K)


def _rows_from(first: int, row_BQX: Tensor | None) -> Tensor | None:
    """Return rows [first, Q) of a tensor; a single row is for all rows."""
    return row_BQX if row_BQX is None or row_BQX.shape[1] == 1 else row_BQX[:, first:]
