"""The masked decoder of "Attention Is All You Need" (Vaswani et al. 2017), with a key-value cache.

Shapes: B lanes, S source, T target, N heads, H head dim, D model, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cluster.memory import check_memory
from finetune.layers.transformer import (
    Attention,
    FeedForward,
    KeysValues,
    StackConfig,
    SubLayer,
    Vocabulary,
    fed_forward,
    initialise,
)
from pretrain.inference.session import moved_lanes
from pretrain.model.block import Norm


@dataclass(frozen=True)
class Memory:
    """The source that a decoder attends to: every layer's keys and values of it, and its mask."""

    layers: list[KeysValues]
    visible_B11S: Tensor

    def repeated(self, times: int) -> "Memory":
        """Return the memory with every lane `times` times, consecutively."""
        if times == 1:
            return self
        lane_B = torch.arange(len(self.visible_B11S), device=self.visible_B11S.device)
        return self.of_lanes(lane_B.repeat_interleave(times))

    def of_lanes(self, lane_X: Tensor) -> "Memory":
        """Return the memory of these lanes only."""
        layers = [(key[lane_X], value[lane_X]) for key, value in self.layers]
        return Memory(layers, self.visible_B11S[lane_X])


class DecoderBlock(nn.Module):
    """Masked attention among the target's tokens, attention to the source, the feed-forward network."""

    def __init__(self, model_dim: int, config: StackConfig) -> None:
        super().__init__()
        self.attention = Attention(model_dim, config.num_heads)
        self.around_attention = SubLayer(model_dim, config)
        self.source_attention = Attention(model_dim, config.num_heads)
        self.around_source_attention = SubLayer(model_dim, config)
        self.feed_forward = FeedForward(model_dim, config)
        self.around_feed_forward = SubLayer(model_dim, config)

    def forward(
        self, rows_BTD: Tensor, source: KeysValues, visible_B11S: Tensor, past: "KeyValueCache | None"
    ) -> Tensor:
        """Return the rows after this layer: of a whole target with a causal mask, or with `past` of one more token."""
        dtype = self.attention.query.weight.dtype
        narrow_BTD = self.around_attention.entering(rows_BTD, dtype)
        keys_values = self.attention.keys_values(narrow_BTD)
        if past is not None:
            keys_values = past.with_new(*keys_values)
        gathered_BTD = self.attention(narrow_BTD, keys_values, None, causal=past is None)
        rows_BTD = self.around_attention.leaving(rows_BTD, gathered_BTD)
        narrow_BTD = self.around_source_attention.entering(rows_BTD, dtype)
        gathered_BTD = self.source_attention(narrow_BTD, source, visible_B11S)
        rows_BTD = self.around_source_attention.leaving(rows_BTD, gathered_BTD)
        return fed_forward(self.feed_forward, self.around_feed_forward, rows_BTD)


class KeyValueCache:
    """One layer's keys and values of the tokens written so far, in buffers allocated once for all tokens."""

    def __init__(self, lanes: int, num_heads: int, max_tokens: int, head_dim: int, like: Tensor) -> None:
        self._key_BNTH = like.new_zeros(lanes, num_heads, max_tokens, head_dim)
        self._value_BNTH = torch.zeros_like(self._key_BNTH)
        self._num_tokens = 0

    def with_new(self, key_BN1H: Tensor, value_BN1H: Tensor) -> KeysValues:
        """Append the new token, and return the keys and values of all tokens."""
        self._key_BNTH[:, :, self._num_tokens] = key_BN1H[:, :, 0]
        self._value_BNTH[:, :, self._num_tokens] = value_BN1H[:, :, 0]
        self._num_tokens += 1
        return self._key_BNTH[:, :, : self._num_tokens], self._value_BNTH[:, :, : self._num_tokens]

    def move(self, to_X: Tensor, from_X: Tensor) -> None:
        """Let lanes `to_X` continue from lanes `from_X`."""
        used = slice(0, self._num_tokens)
        for part_BNTH in (self._key_BNTH, self._value_BNTH):
            part_BNTH[to_X, :, used] = part_BNTH[from_X, :, used]

    def retain(self, lane_X: Tensor) -> None:
        """Keep only these lanes."""
        self._key_BNTH, self._value_BNTH = self._key_BNTH[lane_X], self._value_BNTH[lane_X]


class Decoder(nn.Module):
    """A stack of decoder blocks that attends to rows as wide as its own."""

    def __init__(self, model_dim: int, config: StackConfig) -> None:
        super().__init__()
        self.model_dim, self.num_heads = model_dim, config.num_heads
        self.blocks = nn.ModuleList(DecoderBlock(model_dim, config) for _ in range(config.num_layers))
        self.final_norm = Norm(model_dim) if config.norm == "pre" else nn.Identity()
        initialise(self)

    @property
    def dtype(self) -> torch.dtype:
        """The type in which matrices are multiplied."""
        return next(self.parameters()).dtype

    def memory(self, source_BSD: Tensor, is_source_BS: Tensor) -> Memory:
        """Compute the source's keys and values, once for all tokens of the target."""
        narrow_BSD = source_BSD.to(self.dtype)
        layers = [
            block.source_attention.keys_values(narrow_BSD)
            for block in self.blocks
            if isinstance(block, DecoderBlock)
        ]
        return Memory(layers, is_source_BS[:, None, None])

    def forward(self, rows_BTD: Tensor, memory: Memory, past: list[KeyValueCache] | None = None) -> Tensor:
        """Return the rows to be scored [B, T, D]; see `DecoderBlock.forward`."""
        pasts: list[KeyValueCache] | list[None] = [None] * len(self.blocks) if past is None else past
        for block, source, layer_past in zip(self.blocks, memory.layers, pasts, strict=True):
            rows_BTD = block(rows_BTD, source, memory.visible_B11S, layer_past)
        return self.final_norm(rows_BTD)  # type: ignore[no-any-return]

    def empty_past(self, lanes: int, max_tokens: int) -> list[KeyValueCache]:
        """Allocate the empty caches of all layers. Raises UserError if they do not fit into memory."""
        head_dim = self.model_dim // self.num_heads
        like = next(self.parameters()).detach()
        check_memory(
            2 * lanes * max_tokens * self.model_dim * len(self.blocks) * like.itemsize,
            like.device,
            f"writing {lanes:,} texts of up to {max_tokens:,} tokens side by side",
            "lower decoding.batch, decoding.beam or decoding.max_new_tokens",
        )
        return [KeyValueCache(lanes, self.num_heads, max_tokens, head_dim, like) for _ in self.blocks]


class DecodedText:
    """An `IncrementalDecoder` with a masked decoder; lanes are those of the memory."""

    def __init__(
        self, vocabulary: Vocabulary, decoder: Decoder, memory: Memory, start_id: int, max_tokens: int
    ) -> None:
        self._vocabulary, self._decoder, self._memory = vocabulary, decoder, memory
        lanes = len(memory.visible_B11S)
        # The start and all tokens but the last are read; one more, because decoding may read the last.
        self._past = decoder.empty_past(lanes, max_tokens + 1)
        self._start_B = torch.full((lanes,), start_id, device=memory.visible_B11S.device)
        self._position = 0

    def first(self) -> Tensor:
        """Return the scores [B, V] of the first token."""
        return self.following(self._start_B)

    @torch.inference_mode()
    def following(self, token_B: Tensor) -> Tensor:
        """Return the scores [B, V] of the token after `token_B`."""
        rows_B1D = self._vocabulary.rows(token_B[:, None], self._position)
        self._position += 1
        return self._vocabulary.logits(self._decoder(rows_B1D, self._memory, self._past)[:, 0])

    @torch.inference_mode()
    def reorder(self, lane_B: Tensor) -> None:
        """Let lane i continue from lane `lane_B[i]`, which has the same source."""
        to_X, from_X = moved_lanes(lane_B)
        for layer_past in self._past:
            layer_past.move(to_X, from_X)

    @torch.inference_mode()
    def retain(self, lane_X: Tensor) -> None:
        """Keep only these lanes."""
        self._memory = self._memory.of_lanes(lane_X)
        for layer_past in self._past:
            layer_past.retain(lane_X)
