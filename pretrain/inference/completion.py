"""Completion of prompts from left to right, token ids in and out, through as many segments as it takes.

A prompt shorter than a segment shares its segment with the new tokens. A longer one is read as in training: segment
by segment with the model's memory, the last one leaving half a segment for new tokens.

A full segment becomes the memory of the next one: its last M tokens stay visible, older ones do not. If M is less than
half a segment, the last half segment is read again as the next one's context, with the memory before it, so that
predictions always see some tokens. No prediction sees further than in training.

The ends of segments depend on the length of a lane's prompt alone, not on the number of new tokens.

Shapes: B lanes, T tokens, C columns, V vocabulary.
"""

from collections.abc import Sequence, Sized

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cluster.errors import UserError
from pretrain.inference.beam import beam_search
from pretrain.inference.context import Context
from pretrain.inference.decoder import Decoder, check_positions, check_room
from pretrain.inference.generation import Generated, OnToken, generate
from pretrain.inference.sampling import Sampling, uniforms_of_lanes
from pretrain.inference.session import DecodingSession
from pretrain.inference.token_rules import TokenRules


def first_room_tokens(prompt_tokens: int, segment_tokens: int) -> int:
    """Return how many tokens are written before the first segment is full."""
    return segment_tokens - prompt_tokens if prompt_tokens < segment_tokens else max(1, segment_tokens // 2)


def side_by_side(
    prompts: Sequence[NDArray[np.int64]], max_new_tokens: int, segment_tokens: int
) -> list[list[int]]:
    """Group prompts, by number, for one `Continuation` each: their segments never become full, or all at once."""
    groups: dict[int | None, list[int]] = {}
    for number, prompt in enumerate(prompts):
        room = first_room_tokens(len(prompt), segment_tokens)
        key = None
        if len(prompt) >= segment_tokens:
            key = 0
        elif max_new_tokens > room:
            key = room
        groups.setdefault(key, []).append(number)
    return list(groups.values())


class Continuation:
    """`IncrementalDecoder` for prompts that `side_by_side` puts together, each with `lanes_each` lanes in a row."""

    def __init__(
        self,
        decoder: Decoder,
        prompts: Sequence[NDArray[np.int64]],
        max_new_tokens: int,
        lanes_each: int = 1,
    ) -> None:
        assert len(side_by_side(prompts, max_new_tokens, decoder.segment_tokens)) == 1
        segment_tokens, longest = decoder.segment_tokens, max(map(len, prompts))
        check_positions(decoder, longest + max_new_tokens)
        self._memory_tokens, self._segment_tokens = decoder.memory_tokens, segment_tokens
        room = first_room_tokens(longest, segment_tokens)
        history = max(0, longest - (segment_tokens - room))
        num_columns = longest + max_new_tokens
        if history or max_new_tokens > room:
            num_columns = decoder.memory_tokens + segment_tokens
        context = Context.of_prompts(prompts, decoder.model.device)
        offset_B = longest - context.given_BT.sum(dim=1)
        check_room(decoder, len(prompts) * lanes_each, num_columns)
        self.session = DecodingSession(decoder, len(prompts), num_columns, offset_B)
        read_history(self.session, decoder, context.part(0, history))
        self.session.encode(context.part(history, longest))
        if lanes_each > 1:
            self.session.repeat_lanes(lanes_each)
        self.column = self._context_end = self.session.num_columns
        """The column of the next token."""
        self._segment_end = self.column + room
        self._tokens_BC: Tensor | None = None
        """The segment's tokens by column if they will be read again, else None."""
        if max_new_tokens > room and decoder.memory_tokens < segment_tokens // 2:
            shown_BT = context.tokens_BT[:, history:].repeat_interleave(lanes_each, dim=0)
            self._tokens_BC = shown_BT.new_zeros(len(shown_BT), num_columns)
            self._tokens_BC[:, self.column - shown_BT.shape[1] : self.column] = shown_BT

    def first(self) -> Tensor:
        """Return the logits [B, V] of the first new token."""
        return self.session.predict(self.column)

    def following(self, token_B: Tensor) -> Tensor:
        """Write `token_B` and return the logits [B, V] of the next token."""
        is_full = self.is_full
        self.advance(token_B)
        if not is_full:
            return self.session.write_and_predict(token_B, self.column - 1)
        self.session.write(token_B, self.column - 1)
        self._next_segment()
        return self.session.predict(self.column)

    @property
    def is_full(self) -> bool:
        """Whether the next token is the last one of the segment, so that `following` moves on to another one."""
        return self.column + 1 >= self._segment_end

    def advance(self, token_B: Tensor) -> None:
        """Update the state for tokens that the shared lanes write, not `session`."""
        if self._tokens_BC is not None:
            self._tokens_BC[:, self.column] = token_B
        self.column += 1

    def reorder(self, lane_B: Tensor) -> None:
        """Let lane i continue the tokens of lane `lane_B[i]` of the same prompt."""
        self.session.select_lanes(lane_B, self._context_end)
        if self._tokens_BC is not None:
            self._tokens_BC = self._tokens_BC[lane_B]

    def retain(self, lane_X: Tensor) -> None:
        """Keep only these lanes."""
        self.session.take_lanes(lane_X)
        self.forget(lane_X)

    def forget(self, lane_X: Tensor) -> None:
        """Keep the state of only these lanes; `session` does not change."""
        if self._tokens_BC is not None:
            self._tokens_BC = self._tokens_BC[lane_X]

    def _next_segment(self) -> None:
        full = self.session.num_columns
        carried = 0 if self._tokens_BC is None else self._segment_tokens // 2
        kept = min(self._memory_tokens, full - carried)
        self.session.keep(full - carried - kept, full - carried)
        self._context_end = min(kept, max(0, self._context_end - (full - carried - kept)))
        if self._tokens_BC is not None:
            again_BT = self._tokens_BC[:, full - carried : full].clone()
            self._tokens_BC[:, kept : kept + carried] = again_BT
            self.session.encode(Context.of_text(again_BT))
        self.column = self.session.num_columns
        self._segment_end = kept + self._segment_tokens


def read_history(session: DecodingSession, decoder: Decoder, history: Context) -> None:
    """Read the tokens before the last segment; the session then holds the model's memory of them.

    Segments from which nothing reaches that memory are not read.
    """
    if decoder.memory_tokens == 0:
        return
    for end in range(history.num_columns, 0, -decoder.segment_tokens)[: decoder.reach_segments + 1][::-1]:
        session.encode(history.part(max(0, end - decoder.segment_tokens), end))
        session.keep(max(0, session.num_columns - decoder.memory_tokens), session.num_columns)


MAX_NEW_TOKENS = 1 << 20


def complete_tokens(
    decoder: Decoder,
    prompts: Sequence[NDArray[np.int64]],
    max_new_tokens: int,
    sampling: Sampling,
    rules: TokenRules,
    *,
    num_samples: int = 1,
    first_sample: int = 0,
    watch: OnToken | None = None,
) -> list[Generated]:
    """Return samples `first_sample` to `first_sample + num_samples` of every prompt, those of a prompt in a row.

    Prompts whose segments are full at the same token are decoded side by side, the others after them. A lane's
    result does not depend on the others. Raises UserError for a prompt without tokens, and for one that is too long
    for absolute positions.
    """
    check_prompts(prompts, max_new_tokens)
    found: dict[int, Generated] = {}
    for group in side_by_side(prompts, max_new_tokens, decoder.segment_tokens):
        together = [prompts[number] for number in group]
        lanes = [number * num_samples + sample for number in group for sample in range(num_samples)]
        text = Continuation(decoder, together, max_new_tokens, num_samples)
        samples = range(first_sample, first_sample + num_samples)
        uniform_BT = uniforms_of_lanes(sampling, together, samples, max_new_tokens, decoder.model.device)
        generated = generate(
            text,
            [max_new_tokens] * len(lanes),
            sampling,
            rules,
            uniform_BT,
            watch=None if watch is None else _watch_of(lanes, watch),
        )
        found |= dict(zip(lanes, generated, strict=True))
    return [found[lane] for lane in range(len(found))]


def complete_by_beam(
    decoder: Decoder,
    prompts: Sequence[NDArray[np.int64]],
    max_new_tokens: int,
    width: int,
    rules: TokenRules,
) -> list[list[Generated]]:
    """Return up to `width` continuations of every prompt, the best first. Raises UserError as `complete_tokens`."""
    check_prompts(prompts, max_new_tokens)
    found: dict[int, list[Generated]] = {}
    for group in side_by_side(prompts, max_new_tokens, decoder.segment_tokens):
        text = Continuation(decoder, [prompts[number] for number in group], max_new_tokens, width)
        beams = beam_search(text, [max_new_tokens] * len(group), width, rules)
        found |= dict(zip(group, beams, strict=True))
    return [found[number] for number in range(len(prompts))]


def _watch_of(lanes: Sequence[int], watch: OnToken) -> OnToken:
    return lambda number, token: watch(lanes[number], token)


def check_prompts(prompts: Sequence[Sized], max_new_tokens: int, stops: Sequence[Sized] = ()) -> None:
    """Raise UserError for prompts that cannot be completed, and for an empty stop string."""
    if max_new_tokens < 1:
        raise UserError(f"the number of new tokens must be at least 1, got {max_new_tokens}")
    if max_new_tokens > MAX_NEW_TOKENS:
        raise UserError(f"the number of new tokens must be at most {MAX_NEW_TOKENS}, got {max_new_tokens}")
    if not prompts or not all(map(len, prompts)):
        raise UserError("the prompt is empty: give at least one character to continue from")
    check_stops(stops)


def check_stops(stops: Sequence[Sized]) -> None:
    """Raise UserError for an empty stop string."""
    if not all(map(len, stops)):
        raise UserError("a text to stop at is empty: give at least one character, or leave it out")
