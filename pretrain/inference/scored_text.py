"""Scores of texts in bytes: the tokens, the bytes of each, bits per byte.

Shapes: P predicted, T tokens of a text.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from data_prep.tokenizer import CodeTokenizer
from pretrain.inference.scoring import TokenScores, score_chosen, score_left_to_right
from pretrain.inference.text_ranges import ByteRange, tokens_reaching_into
from pretrain.model.transformer import TwoStreamTransformer


@dataclass(frozen=True)
class ScoredText:
    """The scored tokens of a text in the order of prediction, with their ids and their ranges of bytes."""

    scores: TokenScores
    token_P: NDArray[np.int64]
    start_byte_P: NDArray[np.int64]
    num_bytes_P: NDArray[np.int64]

    @property
    def num_bytes(self) -> int:
        """The bytes of all scored tokens together."""
        return int(self.num_bytes_P.sum())

    @property
    def bits_per_byte(self) -> float:
        """The bits per byte of the scored tokens; NaN if there is none."""
        return self.scores.bits / self.num_bytes if self.num_bytes else math.nan

    def shares(self, parts: Sequence[ByteRange]) -> list["ScoredText"]:
        """Return the scored tokens in each part; a token in several parts counts for the first one only."""
        is_left_P = np.ones(len(self.token_P), dtype=np.bool_)
        found = []
        for part in parts:
            end_byte_P = self.start_byte_P + self.num_bytes_P
            is_here_P = is_left_P & (end_byte_P > part.start) & (self.start_byte_P < part.end)
            is_left_P &= ~is_here_P
            found.append(self._only(is_here_P))
        return found

    def _only(self, kept_P: NDArray[np.bool_]) -> "ScoredText":
        scores = self.scores
        kept = TokenScores(scores.index_P[kept_P], scores.log_probability_P[kept_P], scores.sees_all)
        return ScoredText(kept, self.token_P[kept_P], self.start_byte_P[kept_P], self.num_bytes_P[kept_P])


def score_texts(
    model: TwoStreamTransformer,
    tokenizer: CodeTokenizer,
    texts: Sequence[bytes],
    segment_tokens: int,
    num_likely: int = 0,
    after_segment: Callable[[], None] = lambda: None,
) -> list[ScoredText]:
    """Score every token of every text given those before it: see `score_left_to_right`.

    Raises UserError for an empty text.
    """
    for text in texts:
        _check_not_empty(text)
    tokens = tokenizer.encode_bytes_batch(texts)
    scores = score_left_to_right(model, tokens, tokenizer.eod_id, segment_tokens, num_likely, after_segment)
    return [_scored(tokenizer, *one) for one in zip(tokens, scores, strict=True)]


def score_parts(
    model: TwoStreamTransformer,
    tokenizer: CodeTokenizer,
    text: bytes,
    parts: Sequence[ByteRange],
    segment_tokens: int,
) -> ScoredText:
    """Score the tokens in any of the parts, left to right, given all others: see `score_chosen`.

    So each part is scored given all text outside the parts and the parts before it. Every token counts once, whatever
    the order and overlap of the parts. Raises UserError when the text is empty, no part is given, or one is not in the
    text.
    """
    _check_not_empty(text)
    if not parts:
        raise UserError("no part is given: name the bytes to score")
    for part in parts:
        part.check_within(len(text), "the text")
    tokens_T = tokenizer.encode_bytes(text)
    order_P = tokens_reaching_into(tokenizer.token_bytes[tokens_T], *parts)
    scores = score_chosen(model, tokens_T, order_P, tokenizer.eod_id, segment_tokens)
    return _scored(tokenizer, tokens_T, scores)


def _scored(
    tokenizer: CodeTokenizer, tokens_T: NDArray[np.unsignedinteger], scores: TokenScores
) -> ScoredText:
    num_bytes_T = tokenizer.token_bytes[tokens_T]
    start_byte_T = np.cumsum(num_bytes_T) - num_bytes_T
    index_P = scores.index_P
    return ScoredText(scores, tokens_T[index_P].astype(np.int64), start_byte_T[index_P], num_bytes_T[index_P])


def _check_not_empty(text: bytes) -> None:
    if not text:
        raise UserError("the text is empty: there is nothing to score")
