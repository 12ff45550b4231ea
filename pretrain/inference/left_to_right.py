"""Completion: a prompt is encoded once, then every pass writes the newest token and predicts the next.

A prompt longer than a segment is read as in training: segment after segment with the model's memory, the last
segment leaving room for new tokens (for up to half a segment of them). When a segment is full, it becomes the memory
of the next one: its last M tokens stay in sight, what is older drops out, so that no prediction sees further than
training showed it. Where segments end depends on nothing but the number of new tokens asked for.

Shapes: B lanes, T tokens, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cluster.errors import UserError
from pretrain.inference.sampling import Sampling, uniforms
from pretrain.inference.session import Decoder, DecodingSession
from pretrain.inference.vocabulary import TokenRules

Watch = Callable[[int, int], bool]
"""Told (lane, token) of every new token; True ends the lane."""


@dataclass(frozen=True)
class Generated:
    """New tokens without the one that ends a text; `log_likelihood` (nats, of the untempered model) counts it too.

    `ended` tells whether the text ended, `stopped` whether `watch` ended it; neither means it was cut.
    """

    tokens: tuple[int, ...]
    log_likelihood: float
    ended: bool
    stopped: bool = False


class Continuation:
    """Lanes that are written on, left to right, through as many segments as it takes."""

    def __init__(self, decoder: Decoder, prompts: Sequence[NDArray[np.int64]], max_new_tokens: int) -> None:
        self.decoder = decoder
        segment_tokens, longest = decoder.segment_tokens, max(map(len, prompts))
        tokens_BT, given_BT = _padded_left(prompts, longest, decoder.model.device)
        room = min(max_new_tokens, segment_tokens // 2)
        if decoder.absolute:
            check_positions(decoder, longest + max_new_tokens)
            room = max_new_tokens
        tail = longest if decoder.absolute else min(longest, segment_tokens - room)
        offset_B = longest - given_BT.sum(dim=1)
        if longest > tail or max_new_tokens > room:
            num_columns = decoder.memory_tokens + segment_tokens
        else:
            num_columns = longest + max_new_tokens
        self.session = DecodingSession(decoder, len(prompts), num_columns, offset_B)
        self._read_history(tokens_BT[:, : longest - tail], given_BT[:, : longest - tail])
        self.session.encode(tokens_BT[:, longest - tail :], given_BT[:, longest - tail :])
        self.column = self.session.num_columns
        """Where the next token goes."""
        self._segment_end = self.column + room

    def _read_history(self, tokens_BT: Tensor, given_BT: Tensor) -> None:
        length, segment_tokens = tokens_BT.shape[1], self.decoder.segment_tokens
        if self.decoder.memory_tokens == 0:
            return
        for end in range(length, 0, -segment_tokens)[::-1]:
            part = slice(max(0, end - segment_tokens), end)
            self.session.encode(tokens_BT[:, part], given_BT[:, part])
            self.session.drop_all_but(self.decoder.memory_tokens)

    def first(self) -> Tensor:
        """Scores [B, V] of the first new token."""
        return self.session.predict(self.column)

    def following(self, token_B: Tensor) -> Tensor:
        """Scores [B, V] of the token after `token_B`, which is written."""
        self.column += 1
        if self.column < self._segment_end or self.decoder.absolute:
            return self.session.write_and_predict(token_B, self.column - 1)
        self.session.write(token_B, self.column - 1)
        self.session.drop_all_but(self.decoder.memory_tokens)
        self.column = self.session.num_columns
        self._segment_end = self.column + self.decoder.segment_tokens
        return self.session.predict(self.column)


@torch.inference_mode()
def complete_tokens(
    decoder: Decoder,
    prompts: Sequence[NDArray[np.int64]],
    max_new_tokens: int,
    sampling: Sampling,
    rules: TokenRules,
    *,
    num_samples: int = 1,
    watch: Watch | None = None,
) -> list[Generated]:
    """`num_samples` continuations of every prompt, those of a prompt in a row; all lanes side by side.

    What a lane gets does not depend on the others. Raises UserError for a prompt without tokens and for one that is
    too long for absolute positions.
    """
    check_prompts(prompts, max_new_tokens)
    lanes = [(prompt, sample) for prompt in prompts for sample in range(num_samples)]
    text = Continuation(decoder, [prompt for prompt, _ in lanes], max_new_tokens)
    uniform_BT = torch.zeros(len(lanes), max_new_tokens)
    if not sampling.greedy:
        uniform_BT = torch.stack(
            [uniforms(sampling.seed, prompt.tolist(), sample, max_new_tokens) for prompt, sample in lanes]
        )
    uniform_BT = uniform_BT.to(decoder.model.device)
    chosen, scores = [], []
    going = [True] * len(lanes)
    lengths, endings = [max_new_tokens] * len(lanes), [(False, False)] * len(lanes)
    logits_BV = text.first()
    for step in range(max_new_tokens):
        token_B = sampling.choose(rules.allow(logits_BV), uniform_BT[:, step])
        chosen.append(token_B)
        scores.append(log_probability(logits_BV, token_B))
        if rules.end is not None or watch is not None:
            for lane, token in enumerate(token_B.tolist()):
                if not going[lane]:
                    continue
                ended = token == rules.end
                stopped = not ended and watch is not None and watch(lane, token)
                if ended or stopped:
                    going[lane] = False
                    lengths[lane], endings[lane] = step + 1, (ended, stopped)
            if not any(going):
                break
        if step + 1 < max_new_tokens:
            logits_BV = text.following(token_B)
    tokens_BT, scores_BT = torch.stack(chosen, dim=1).tolist(), torch.stack(scores, dim=1).double()
    return [
        Generated(
            tuple(tokens_BT[lane][: lengths[lane] - endings[lane][0]]),
            float(scores_BT[lane, : lengths[lane]].sum()),
            *endings[lane],
        )
        for lane in range(len(lanes))
    ]


def log_probability(logits_XV: Tensor, token_X: Tensor) -> Tensor:
    """Natural logarithm [X] of the probability the scores give to tokens, float32 at least."""
    logits_XV = logits_XV.to(torch.promote_types(logits_XV.dtype, torch.float32))
    return logits_XV.gather(-1, token_X[:, None])[:, 0] - logits_XV.logsumexp(dim=-1)


def check_prompts(prompts: Sequence[NDArray[np.int64]], max_new_tokens: int) -> None:
    """Raise UserError for what cannot be completed."""
    if max_new_tokens < 1:
        raise UserError(f"the number of new tokens must be at least 1, got {max_new_tokens}")
    if not prompts or not all(map(len, prompts)):
        raise UserError("the prompt is empty: give at least one character to go on from")


def check_positions(decoder: Decoder, num_tokens: int) -> None:
    """Raise UserError when a text does not fit a model with absolute positions."""
    positions = decoder.model.config.positions
    limit = getattr(positions, "max_positions", decoder.segment_tokens)
    if num_tokens > limit:
        raise UserError(
            f"prompt and new tokens make {num_tokens} tokens, and this model with {positions.kind} positions can "
            f"place {limit}: use a shorter prompt or ask for fewer tokens"
        )


def _padded_left(
    prompts: Sequence[NDArray[np.int64]], longest: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    tokens_BT = torch.zeros(len(prompts), longest, dtype=torch.int64)
    given_BT = torch.zeros(len(prompts), longest, dtype=torch.bool)
    for lane, prompt in enumerate(prompts):
        tokens_BT[lane, longest - len(prompt) :] = torch.from_numpy(prompt)
        given_BT[lane, longest - len(prompt) :] = True
    return tokens_BT.to(device), given_BT.to(device)
