"""Writing on after a prompt, through as many segments as it takes.

A prompt longer than a segment is read as in training: segment after segment with the model's memory, the last
segment leaving room for new tokens (for up to half a segment of them). When a segment is full, it becomes the memory
of the next one: its last M tokens stay in sight, what is older drops out, so that no prediction sees further than
training showed it. Where segments end depends on nothing but the number of new tokens asked for.

Shapes: B lanes, T tokens, V vocabulary.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.inference.session import Decoder, DecodingSession
from pretrain.inference.written import check_positions


class Continuation:
    """`Written` for prompts, each of which has `lanes_each` lanes in a row."""

    def __init__(
        self,
        decoder: Decoder,
        prompts: Sequence[NDArray[np.int64]],
        max_new_tokens: int,
        lanes_each: int = 1,
    ) -> None:
        self._decoder = decoder
        segment_tokens, longest = decoder.segment_tokens, max(map(len, prompts))
        check_positions(decoder, longest + max_new_tokens)
        room = min(max_new_tokens, segment_tokens // 2)
        tail = min(longest, segment_tokens - room)
        if decoder.absolute:
            room, tail = max_new_tokens, longest
        num_columns = longest + max_new_tokens
        if longest > tail or max_new_tokens > room:
            num_columns = decoder.memory_tokens + segment_tokens
        tokens_BT, given_BT = _padded_left(prompts, longest, decoder.model.device)
        offset_B = longest - given_BT.sum(dim=1)
        self._session = DecodingSession(decoder, len(prompts), num_columns, offset_B)
        history = longest - tail
        read_history(self._session, decoder, tokens_BT[:, :history], given_BT[:, :history])
        self._session.encode(tokens_BT[:, history:], given_BT[:, history:])
        if lanes_each > 1:
            self._session.repeat_lanes(lanes_each)
        self._column = self._context_end = self._session.num_columns
        self._segment_end = self._column + room

    def first(self) -> Tensor:
        """Scores [B, V] of the first new token."""
        return self._session.predict(self._column)

    def following(self, token_B: Tensor) -> Tensor:
        """Scores [B, V] of the token after `token_B`, which is written."""
        self._column += 1
        if self._column < self._segment_end:
            return self._session.write_and_predict(token_B, self._column - 1)
        self._session.write(token_B, self._column - 1)
        self._context_end -= self._session.num_columns - self._decoder.memory_tokens
        self._session.drop_all_but(self._decoder.memory_tokens)
        self._column = self._session.num_columns
        self._segment_end = self._column + self._decoder.segment_tokens
        return self._session.predict(self._column)

    def reorder(self, lane_B: Tensor) -> None:
        """Let lane i go on from the tokens of lane `lane_B[i]` of the same prompt."""
        self._session.select_lanes(lane_B, max(0, self._context_end))


def read_history(session: DecodingSession, decoder: Decoder, tokens_BT: Tensor, given_BT: Tensor) -> None:
    """Read what lies before the last segment; the session then holds the model's memory of it."""
    if decoder.memory_tokens == 0:
        return
    for end in range(tokens_BT.shape[1], 0, -decoder.segment_tokens)[::-1]:
        part = slice(max(0, end - decoder.segment_tokens), end)
        session.encode(tokens_BT[:, part], given_BT[:, part])
        session.drop_all_but(decoder.memory_tokens)


def _padded_left(
    prompts: Sequence[NDArray[np.int64]], longest: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    tokens_BT = torch.zeros(len(prompts), longest, dtype=torch.int64)
    given_BT = torch.zeros(len(prompts), longest, dtype=torch.bool)
    for lane, prompt in enumerate(prompts):
        tokens_BT[lane, longest - len(prompt) :] = torch.from_numpy(prompt)
        given_BT[lane, longest - len(prompt) :] = True
    return tokens_BT.to(device), given_BT.to(device)
