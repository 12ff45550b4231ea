"""A model prepared for decoding, and what its sessions share and must have room for.

Shapes: B lanes, P predicted rows, D model, R distances, V vocabulary.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from cluster.errors import UserError
from cluster.memory import check_memory
from pretrain.inference.fused_layers import FusedLayers
from pretrain.inference.layer import DecodingLayer
from pretrain.inference.linear import FrozenLinear
from pretrain.model.attention_scores import Distances
from pretrain.model.block import Block
from pretrain.model.layout import DistanceSpan
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
        self._before_pass: Callable[[], None] = lambda: None

    def pausing(self, before_pass: Callable[[], None]) -> "Decoder":
        """Return the same decoder with a count of its own, for sessions that call `before_pass` before every pass.

        Whatever `before_pass` does with other sessions does not disturb these; if it raises, no pass is made.
        """
        found = copy(self)
        found.num_passes, found._before_pass = 0, before_pass
        return found

    def begin_pass(self, *, is_counted: bool = True) -> None:
        """Every pass of a session begins with this, before anything changes."""
        self._before_pass()
        self.num_passes += is_counted

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
    def reach_segments(self) -> int:
        """The number of segments before a text on which its memory can depend: each layer sees one memory further."""
        span_tokens = self.memory_tokens + self.segment_tokens
        return -(-self.model.config.num_layers * span_tokens // self.segment_tokens)

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
