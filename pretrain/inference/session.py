"""Decoding with a cache of keys and values: a text is encoded once, every later pass runs only new rows.

Shapes: B lanes, T new content rows, P predicted rows, Q = T + P rows, C columns, K columns in use, D model,
V vocabulary.
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from pretrain.inference.context import Context
from pretrain.inference.decoder import Decoder
from pretrain.inference.gpu.static_passes import StaticPasses, can_record
from pretrain.inference.layer import LayerCache
from pretrain.inference.pass_layout import PassLayout, PassRows
from pretrain.model.precision import at_least_float32


class DecodingSession:
    """Lanes that are decoded side by side, with a cache of keys and values for every layer.

    Tokens are written in the order of prediction: a pass sees everything that earlier passes wrote, and those of its
    own content rows that their ranks allow. Column c of lane b has position c - `offset_B[b]`.
    """

    def __init__(
        self,
        decoder: Decoder,
        lanes: int,
        num_columns: int,
        offset_B: Tensor | None = None,
    ) -> None:
        model = decoder.model
        config, device = model.config, model.device
        self._decoder = decoder
        self.model, self.layers, self._logits = model, decoder.layers, decoder.logits
        self._fused_layers = decoder.fused_layers
        self.tables = decoder.distance_tables(num_columns)
        self.offset_B = torch.zeros(lanes, dtype=torch.int64, device=device) if offset_B is None else offset_B
        self._column_C = torch.arange(num_columns + 1, device=device)
        self._update_positions()
        self.filled_BC = torch.zeros(lanes, num_columns + 1, dtype=torch.bool, device=device)
        self._before_BC = torch.zeros_like(self.filled_BC, dtype=torch.int64)
        """The document of every column as in `Context`; all rows but the context's belong to the text itself."""
        self._compares_documents = config.segment_encodings
        self._is_causal = config.context == "causal"
        self._absolute = decoder.absolute
        self._last_position = getattr(config.positions, "max_positions", num_columns) - 1
        self.num_columns = 0
        """The number of columns in use, filled or not."""
        shape = (config.num_heads, lanes, num_columns, config.head_dim)
        with torch.inference_mode():
            self.caches = [
                LayerCache(
                    # Zeros, because a weight of zero times an unwritten value must be zero.
                    torch.zeros(shape, dtype=layer.attention_dtype, device=device),
                    torch.zeros(shape, dtype=layer.attention_dtype, device=device),
                    of_layer,
                )
                for layer, of_layer in zip(self.layers, self.tables.of_layers, strict=True)
            ]
        self.has_documents_before = False
        """Whether columns of documents before the text are in use, and the model has encodings for them."""
        self._hidden_B1C: Tensor | None = None
        self._is_hidden_known = True
        """Whether `_hidden_B1C` fits `filled_BC`: after passes in any columns it is computed when it is needed."""
        self._static_passes = StaticPasses(self) if can_record(device) else None

    def copy_from(self, other: "DecodingSession", first_lane: int, first_column: int) -> None:
        """Copy another session's cache into lanes from `first_lane` on, after `first_column` empty columns."""
        from_X = torch.arange(len(other.offset_B), device=self.offset_B.device)
        self.put_lanes(other, from_X, from_X + first_lane, first_column, other.num_columns)

    @torch.inference_mode()
    def put_lanes(
        self, other: "DecodingSession", from_X: Tensor, to_X: Tensor, shift_columns: int, end_column: int
    ) -> None:
        """Replace lanes `to_X` by lanes `from_X` of another session, its columns before `end_column` moved by a shift.

        Columns that would move before the first one must be empty.
        """
        first = max(0, -shift_columns)
        theirs = slice(first, end_column)
        columns = slice(first + shift_columns, end_column + shift_columns)
        for cache, their_cache in zip(self.caches, other.caches, strict=True):
            cache.key_NBCH[:, to_X, columns] = their_cache.key_NBCH[:, from_X, theirs]
            cache.value_NBCH[:, to_X, columns] = their_cache.value_NBCH[:, from_X, theirs]
        for own_BC, their_BC in ((self.filled_BC, other.filled_BC), (self._before_BC, other._before_BC)):
            own_BC[to_X] = 0
            own_BC[to_X, columns] = their_BC[from_X, theirs]
        # A token keeps its position, so the rotation of rotary keys does not change.
        self.offset_B[to_X] = other.offset_B[from_X] + shift_columns
        self._update_positions()
        self.num_columns = max(self.num_columns, columns.stop)
        self._columns_changed()

    @torch.inference_mode()
    def set_documents(self, before_BC: Tensor) -> None:
        """Set the documents that the columns in use belong to, as in `Context`."""
        self._before_BC[:, : self.num_columns] = before_BC
        self._columns_changed()

    @torch.inference_mode()
    def clear(self) -> None:
        """Leave every column of every lane empty."""
        self.filled_BC.zero_()
        self._before_BC.zero_()
        self.num_columns = 0
        self._columns_changed()

    @property
    def max_columns(self) -> int:
        """The number of columns that there is room for."""
        return self.filled_BC.shape[1] - 1

    @property
    def num_bytes(self) -> int:
        """The size of all keys and values."""
        return sum(cache.key_NBCH.nbytes + cache.value_NBCH.nbytes for cache in self.caches)

    @torch.inference_mode()
    def encode(self, context: Context) -> None:
        """Append T columns of context, which sees itself as the model's config says, and all earlier columns.

        Columns without a given token (padding, a hole) stay empty.
        """
        if context.num_columns == 0:
            return
        self._decoder.begin_pass(is_counted=False)
        first = self.num_columns
        self.num_columns += context.num_columns
        self.filled_BC[:, first : self.num_columns] = context.given_BT
        self._before_BC[:, first : self.num_columns] = context.before_BT
        self._columns_changed()
        layout = self._aligned(first, context.num_columns, 0)
        if layout.other_document_BQK is not None:
            other_BTK = self._before_BC[:, None, : layout.num_keys] != context.before_BT[:, :, None]
            layout = replace(layout, other_document_BQK=other_BTK)
        self._run(context.tokens_BT, self._causal(layout) if self._is_causal else layout)

    def _causal(self, layout: PassLayout) -> PassLayout:
        """Return the layout of context rows that do not see later columns."""
        row_column_BT1 = layout.columns_BQ[:, :, None]
        visible_BTK = self.filled_BC[:, None, : layout.num_keys] & (
            self._column_C[: layout.num_keys] <= row_column_BT1
        )
        hidden_BTK = torch.zeros(visible_BTK.shape, dtype=self.model.dtype, device=visible_BTK.device)
        return replace(
            layout,
            hidden_BQK=hidden_BTK.masked_fill(~visible_BTK, torch.finfo(hidden_BTK.dtype).min),
            sees_any_BQ1=visible_BTK.any(dim=-1, keepdim=True),
        )

    @torch.inference_mode()
    def keep(self, first: int, end: int) -> None:
        """Keep only columns [first, end), as segment memory does; columns and positions are counted from 0 again."""
        if (first, end) != (0, self.num_columns):
            self._move_to_front(first, end - first)

    def _move_to_front(self, dropped: int, keep: int) -> None:
        back_B1 = torch.full((len(self.offset_B), 1), -dropped, device=self.offset_B.device)
        for layer, cache in zip(self.layers, self.caches, strict=True):
            kept_BKNH = cache.key_NBCH[:, :, dropped : dropped + keep].permute(1, 2, 0, 3).clone()
            # Rotary keys are rotated by their position, which has changed.
            turned_BKNH = layer.positions.with_positions(kept_BKNH, back_B1.expand(-1, keep))
            cache.key_NBCH[:, :, :keep] = turned_BKNH.permute(2, 0, 1, 3)
            cache.value_NBCH[:, :, :keep] = cache.value_NBCH[:, :, dropped : dropped + keep].clone()
        for column_BC in (self.filled_BC, self._before_BC):
            column_BC[:, :keep] = column_BC[:, dropped : dropped + keep].clone()
            column_BC[:, keep:] = 0
        self.num_columns = keep
        self._columns_changed()

    @torch.inference_mode()
    def write(self, token_B: Tensor, column: int) -> None:
        """Write the next token of every lane, without a prediction."""
        self._pass(token_B[:, None], column, 0)

    @torch.inference_mode()
    def predict(self, column: int) -> Tensor:
        """Return the logits [B, V] of the token in `column`, given all written tokens."""
        return self._pass(None, column, 1)[:, 0]

    @torch.inference_mode()
    def write_and_predict(self, token_B: Tensor, column: int) -> Tensor:
        """Write into `column` and return the logits [B, V] of the next column, in one pass."""
        return self._pass(token_B[:, None], column, 1)[:, 0]

    @torch.inference_mode()
    def select_lanes(self, lane_B: Tensor, first_column: int) -> None:
        """Copy lane `lane_B[i]` to lane i from `first_column` on; before it they must be equal."""
        columns = slice(first_column, self.num_columns)
        to_X, from_X = moved_lanes(lane_B)
        for cache in self.caches:
            for part_NBCH in (cache.key_NBCH, cache.value_NBCH):
                part_NBCH[:, to_X, columns] = part_NBCH[:, from_X, columns]

    def repeat_lanes(self, times: int) -> None:
        """Repeat every lane `times` times, in a row."""
        self.take_lanes(
            torch.arange(len(self.offset_B), device=self.offset_B.device).repeat_interleave(times)
        )

    @torch.inference_mode()
    def take_lanes(self, lane_X: Tensor) -> None:
        """Keep copies of these lanes and nothing else."""
        self.offset_B, self.filled_BC = self.offset_B[lane_X], self.filled_BC[lane_X]
        self._before_BC = self._before_BC[lane_X]
        self._update_positions()
        self.caches = [
            LayerCache(cache.key_NBCH[:, lane_X], cache.value_NBCH[:, lane_X], cache.distances)
            for cache in self.caches
        ]
        self._columns_changed()
        if self._static_passes is not None:
            self._static_passes = StaticPasses(self)

    @torch.inference_mode()
    def step(
        self,
        token_BT: Tensor,
        column_BT: Tensor,
        rank_BT: Tensor,
        predicted_column_BP: Tensor,
        predicted_rank_BP: Tensor,
    ) -> Tensor:
        """Write tokens to any columns, predict any columns, and return the logits [B, P, V].

        All rows see the tokens of earlier passes. Ranks decide what they see of this pass: a content row sees the
        content rows of its own and lower ranks, a predicted row those of lower ranks.
        """
        self._decoder.begin_pass()
        rows = PassRows(
            token_BT,
            torch.cat([column_BT, predicted_column_BP], dim=1),
            rank_BT,
            torch.cat([rank_BT + 1, predicted_rank_BP], dim=1),
        )
        self._is_hidden_known = False
        if self._static_passes is not None:
            return self._static_passes.run(rows, self.num_columns)
        return self.run_rows(rows, self.num_columns)

    def run_rows(self, rows: PassRows, num_keys: int) -> Tensor:
        """Write and predict as `step` does, with the first `num_keys` columns, which include all in use.

        Does not wait for a GPU, and no shape depends on numbers: a CUDA graph can repeat it.
        """
        column_BT = rows.column_BQ[:, : rows.num_content]
        lanes, num_rows = rows.column_BQ.shape
        visible_BQK = self.filled_BC[:, None, :num_keys].repeat(1, num_rows, 1)
        visible_BQK.scatter_(
            2,
            column_BT[:, None, :].expand(-1, num_rows, -1),
            rows.rank_BT[:, None, :] < rows.bound_BQ[:, :, None],
        )
        hidden_BQK = torch.zeros(visible_BQK.shape, dtype=self.model.dtype, device=visible_BQK.device)
        layout = PassLayout(
            self.tables.span,
            rows.num_content,
            num_keys,
            rows.column_BQ - self.offset_B[:, None],
            hidden_BQK.masked_fill(~visible_BQK, torch.finfo(self.model.dtype).min),
            visible_BQK.any(dim=-1, keepdim=True),
            None,
            rows.column_BQ,
            self._other_documents(num_keys),
        )
        self.filled_BC.scatter_(1, column_BT, True)
        return self._run(rows.token_BT if rows.num_content else None, layout)

    def erase(self, column_BT: Tensor) -> None:
        """Erase the tokens in columns."""
        self.filled_BC.scatter_(1, column_BT, False)
        self._is_hidden_known = False

    def _pass(self, token_BT: Tensor | None, column: int, num_predicted: int) -> Tensor:
        """Write tokens from `column` on, which every row sees, and return the logits [B, P, V] of the next columns."""
        self._decoder.begin_pass(is_counted=num_predicted > 0)
        num_content = 0 if token_BT is None else token_BT.shape[1]
        if self._static_passes is not None:
            self._is_hidden_known = False
            self.num_columns = max(self.num_columns, column + num_content)
            return self._static_passes.run_aligned(token_BT, column, num_predicted)
        if num_content:
            self._fill(column)
        return self._run(token_BT, self._aligned(column, num_content, num_predicted))

    def _fill(self, column: int) -> None:
        self.filled_BC[:, column] = True
        self.num_columns = max(self.num_columns, column + 1)
        if self._hidden_B1C is not None:
            self._hidden_B1C[:, :, column] = 0.0

    def _update_positions(self) -> None:
        self._position_BC = self._column_C - self.offset_B[:, None]

    def _columns_changed(self) -> None:
        """Notice that columns were filled, emptied or moved."""
        self.has_documents_before = self._compares_documents and bool(self._before_BC.any())
        self._is_hidden_known = False

    def _other_documents(self, num_keys: int) -> Tensor | None:
        """Return which of the first columns are of another document than the text, [B, 1, K]; None if none is."""
        return self._before_BC[:, None, :num_keys] != 0 if self.has_documents_before else None

    def _hidden(self) -> Tensor | None:
        """Return the lowest number where a column is empty, else 0, [B, 1, C]; None if no column in use is empty."""
        if not self._is_hidden_known:
            self._hidden_B1C, self._is_hidden_known = None, True
            if not bool(self.filled_BC[:, : self.num_columns].all()):
                zeros_BC = torch.zeros(
                    self.filled_BC.shape, dtype=self.model.dtype, device=self.filled_BC.device
                )
                self._hidden_B1C = zeros_BC.masked_fill(~self.filled_BC, torch.finfo(zeros_BC.dtype).min)[
                    :, None
                ]
        return self._hidden_B1C

    def _aligned(self, first_column: int, num_content: int, num_predicted: int) -> PassLayout:
        """Return the layout of consecutive columns, the same in every lane, whose rows see every filled column."""
        last = first_column + num_content + num_predicted
        hidden_B1K = sees_any_B11 = None
        if (hidden_B1C := self._hidden()) is not None:
            hidden_B1K = hidden_B1C[:, :, : self.num_columns]
            sees_any_B11 = self.filled_BC[:, : self.num_columns].any(dim=-1)[:, None, None]
        return PassLayout(
            self.tables.span,
            num_content,
            self.num_columns,
            self._position_BC[:, first_column:last],
            hidden_B1K,
            sees_any_B11,
            first_column,
            None,
            self._other_documents(self.num_columns),
        )

    def _run(self, tokens_BT: Tensor | None, layout: PassLayout) -> Tensor:
        """Write the content rows to every layer's cache; return the logits [B, P, V] of the predicted rows."""
        rows_BQD = self._input_rows(tokens_BT, layout)
        if self._fused_layers is not None and self._fused_layers.takes(rows_BQD):
            num_predicted = rows_BQD.shape[1] - layout.num_content
            rows_BPD = self._fused_layers.advance(rows_BQD, self.caches, layout, num_predicted)
        else:
            for layer, cache in zip(self.layers[:-1], self.caches[:-1], strict=True):
                rows_BQD = layer.advance(rows_BQD, cache, layout)
            rows_BPD = self.layers[-1].advance(rows_BQD, self.caches[-1], layout, only_predicted=True)
        return self._logits(rows_BPD) if rows_BPD.shape[1] else rows_BPD

    def _input_rows(self, tokens_BT: Tensor | None, layout: PassLayout) -> Tensor:
        """Return the model's `content_rows` and `query_rows`, without a copy of the whole embedding table."""
        model = self.model
        lanes, num_rows = layout.position_BQ.shape
        rows_BQD = model.query_start_D.expand(lanes, num_rows - layout.num_content, -1)
        if tokens_BT is not None:
            rows_BQD = torch.cat([functional.embedding(tokens_BT, model.embedding.weight), rows_BQD], dim=1)
        rows_BQD = at_least_float32(rows_BQD)
        if not self._absolute:
            return rows_BQD
        # Padding and ended lanes have positions before the first or after the last, which nothing reads.
        position_BQ = layout.position_BQ.clamp(min=0, max=self._last_position)
        added_BQD = model.input_positions.vectors(position_BQ, extent=0)
        assert added_BQD is not None
        return rows_BQD + added_BQD.to(rows_BQD.dtype)


def moved_lanes(lane_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lanes i that differ from their source lane `lane_B[i]`: (i, lane_B[i]), int64 [X] each."""
    to_X = (lane_B != torch.arange(len(lane_B), device=lane_B.device)).nonzero()[:, 0]
    return to_X, lane_B[to_X]
