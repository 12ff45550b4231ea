"""Decoding with a cache of keys and values: a text is encoded once, every later pass runs only new rows.

Shapes: B lanes, T new content rows, P predicted rows, Q = T + P rows, C columns, K columns in use, D model,
V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from cluster.errors import UserError
from cluster.memory import check_memory
from pretrain.inference.context import Context
from pretrain.inference.fused_layers import FusedLayers
from pretrain.inference.gpu.static_passes import StaticPasses, can_record
from pretrain.inference.layer import DecodingLayer, LayerCache
from pretrain.inference.linear import FrozenLinear
from pretrain.inference.pass_layout import PassLayout, PassRows
from pretrain.model.attention_scores import Distances
from pretrain.model.block import Block
from pretrain.model.layout import DistanceSpan
from pretrain.model.precision import at_least_float32
from pretrain.model.transformer import TwoStreamTransformer


class Decoder:
    """A model prepared for decoding: its layers' projections are arranged once, for any number of sessions.

    `segment_tokens` is L, the segment length of the training. The model must not change while it is used.
    """

    def __init__(self, model: TwoStreamTransformer, segment_tokens: int) -> None:
        self.model = model.eval()
        self.segment_tokens = segment_tokens
        with torch.inference_mode():
            self.layers = [
                DecodingLayer(block, model.config.activation)
                for block in model.blocks
                if isinstance(block, Block)
            ]
            self.fused_layers = FusedLayers.of(self.layers)
            weight_VD = model.embedding.weight if model.output is None else model.output.weight
            self._output = FrozenLinear(weight_VD, model.output_bias_V.detach())
        self._tables: dict[int, DistanceTables] = {}
        self.num_passes = 0
        """How often rows of any session were predicted; reading a text is not counted."""

    def distance_tables(self, num_columns: int) -> "DistanceTables":
        """Return the tables for up to `num_columns`; they are cached by the number that `table_columns` rounds to."""
        columns = table_columns(num_columns)
        if columns not in self._tables:
            self._tables[columns] = DistanceTables.of(self, columns)
        return self._tables[columns]

    def logits(self, rows_BPD: Tensor) -> Tensor:
        """Return the logits [B, P, V] of predicted rows after the last layer."""
        normed_BPD: Tensor = self.model.final_norm(rows_BPD)
        return self._output(normed_BPD.to(self.model.dtype))

    @property
    def memory_tokens(self) -> int:
        """M, the number of memory positions."""
        return self.model.config.memory_tokens

    @property
    def absolute(self) -> bool:
        """Whether the model has absolute positions, not relative ones."""
        return self.model.config.positions.kind.startswith("absolute")


def check_room(decoder: Decoder, lanes: int, num_columns: int) -> None:
    """Raise UserError when keys and values of so many lanes do not fit into memory."""
    config, element_bytes = decoder.model.config, decoder.layers[0].attention_dtype.itemsize
    # Keys and values of every lane; those of distances, of which there are twice as many, are shared.
    columns = 2 * lanes * num_columns + 2 * table_columns(num_columns)
    needed_bytes = columns * config.num_layers * config.num_heads * config.head_dim * element_bytes
    check_memory(
        needed_bytes,
        decoder.model.device,
        f"writing {lanes:,} texts of up to {num_columns:,} tokens side by side",
        "write fewer at a time (batch, beam, samples), or shorter ones (max_new_tokens)",
    )


def check_positions(decoder: Decoder, num_tokens: int) -> None:
    """Raise UserError when a text with its new tokens does not fit a model with absolute positions."""
    positions = decoder.model.config.positions
    # A table may have more positions than were trained.
    limit = min(decoder.segment_tokens, getattr(positions, "max_positions", decoder.segment_tokens))
    if decoder.absolute and num_tokens > limit:
        raise UserError(
            f"text and new tokens make {num_tokens} tokens, and this model with {positions.kind} positions can "
            f"place {limit}: use a shorter text or fewer new tokens"
        )


def table_columns(num_columns: int) -> int:
    """Round up to a power of two, so that few tables serve sessions of many lengths."""
    return 1 << max(0, num_columns - 1).bit_length()


@dataclass(frozen=True)
class DistanceTables:
    """Every layer's keys and values of each distance of two columns."""

    span: DistanceSpan
    of_layers: Sequence[Distances]

    @classmethod
    @torch.inference_mode()
    def of(cls, decoder: Decoder, num_columns: int) -> "DistanceTables":
        """Make the tables for up to `num_columns`."""
        span = DistanceSpan(low=1 - num_columns, high=num_columns)
        table_RD = decoder.model.distance_table(span)
        of_layers = [
            layer.block.attention.distances(span, table_RD).to(layer.attention_dtype)
            for layer in decoder.layers
        ]
        return cls(span, of_layers)


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
        self._before_BC = torch.zeros_like(self.filled_BC)
        """The columns of the document before the text; all rows but the context's belong to the text itself."""
        self._compares_documents = config.segment_encodings
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
        """Whether columns of the document before the text are in use, and the model has encodings for them."""
        self._hidden_B1C: Tensor | None = None
        self._is_hidden_known = True
        """Whether `_hidden_B1C` fits `filled_BC`: after passes in any columns it is computed when it is needed."""
        self._static_passes = StaticPasses(self) if can_record(device) else None

    @torch.inference_mode()
    def copy_from(self, other: "DecodingSession", first_lane: int, first_column: int) -> None:
        """Copy another session's cache into lanes from `first_lane` on, after `first_column` empty columns."""
        lanes = slice(first_lane, first_lane + len(other.offset_B))
        columns = slice(first_column, first_column + other.num_columns)
        for cache, theirs in zip(self.caches, other.caches, strict=True):
            cache.key_NBCH[:, lanes, columns] = theirs.key_NBCH[:, :, : other.num_columns]
            cache.value_NBCH[:, lanes, columns] = theirs.value_NBCH[:, :, : other.num_columns]
        self.filled_BC[lanes, columns] = other.filled_BC[:, : other.num_columns]
        self._before_BC[lanes, columns] = other._before_BC[:, : other.num_columns]
        # A token keeps its position, so the rotation of rotary keys does not change.
        self.offset_B[lanes] = other.offset_B + first_column
        self._update_positions()
        self.num_columns = max(self.num_columns, columns.stop)
        self._columns_changed()

    @torch.inference_mode()
    def encode(self, context: Context) -> None:
        """Append T columns of context, which sees itself in both directions, and all earlier columns.

        Columns without a given token (padding, a hole) stay empty.
        """
        if context.num_columns == 0:
            return
        first = self.num_columns
        self.num_columns += context.num_columns
        self.filled_BC[:, first : self.num_columns] = context.given_BT
        self._before_BC[:, first : self.num_columns] = context.before_BT
        self._columns_changed()
        layout = self._aligned(first, context.num_columns, 0)
        if layout.other_document_BQK is not None:
            of_row_BT1 = context.before_BT[:, :, None]
            layout = replace(layout, other_document_BQK=layout.other_document_BQK != of_row_BT1)
        self._run(context.tokens_BT, layout)

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
            column_BC[:, keep:] = False
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
        rows = PassRows(
            token_BT,
            torch.cat([column_BT, predicted_column_BP], dim=1),
            rank_BT,
            torch.cat([rank_BT + 1, predicted_rank_BP], dim=1),
        )
        self._is_hidden_known = False
        self._decoder.num_passes += 1
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
            self._before_BC[:, None, :num_keys] if self.has_documents_before else None,
        )
        self.filled_BC.scatter_(1, column_BT, True)
        return self._run(rows.token_BT if rows.num_content else None, layout)

    def erase(self, column_BT: Tensor) -> None:
        """Erase the tokens in columns."""
        self.filled_BC.scatter_(1, column_BT, False)
        self._is_hidden_known = False

    def _pass(self, token_BT: Tensor | None, column: int, num_predicted: int) -> Tensor:
        """Write tokens from `column` on, which every row sees, and return the logits [B, P, V] of the next columns."""
        num_content = 0 if token_BT is None else token_BT.shape[1]
        self._decoder.num_passes += num_predicted > 0
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
            self._before_BC[:, None, : self.num_columns] if self.has_documents_before else None,
        )

    def _run(self, tokens_BT: Tensor | None, layout: PassLayout) -> Tensor:
        """Write the content rows to every layer's cache; return the logits [B, P, V] of the predicted rows."""
        rows_BQD = self._input_rows(tokens_BT, layout)
        if self._fused_layers is not None and self._fused_layers.takes(rows_BQD, layout):
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
