"""Scores of texts in bytes: which tokens they are, what each spells, bits per byte.

Shapes: P predicted, T tokens of a text.
"""

from collections.abc import Sequence
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
    """The scored tokens of a text in the order of prediction: ids, and the bytes of the text each one spells."""

    scores: TokenScores
    token_P: NDArray[np.int64]
    start_byte_P: NDArray[np.int64]
    num_bytes_P: NDArray[np.int64]

    @property
    def num_bytes(self) -> int:
        """Of all scored tokens together."""
        return int(self.num_bytes_P.sum())

    @property
    def bits_per_byte(self) -> float:
        """Of the scored tokens; every one spells a byte at least."""
        return self.scores.bits / self.num_bytes


def score_texts(
    model: TwoStreamTransformer, tokenizer: CodeTokenizer, texts: Sequence[bytes], segment_tokens: int
) -> list[ScoredText]:
    """Every token of every text from those before it: see `score_left_to_right`. UserError for an empty text."""
    for text in texts:
        _check_not_empty(text)
    tokens = tokenizer.encode_bytes_batch(texts)
    scores = score_left_to_right(model, tokens, tokenizer.eod_id, segment_tokens)
    return [_scored(tokenizer, *one) for one in zip(tokens, scores, strict=True)]


def score_part(
    model: TwoStreamTransformer, tokenizer: CodeTokenizer, text: bytes, part: ByteRange, segment_tokens: int
) -> ScoredText:
    """The tokens that reach into `part`, left to right, given all of the text around them: see `score_chosen`.

    Raises UserError when the text is empty or the part is not in it.
    """
    _check_not_empty(text)
    part.check_within(len(text), "the text")
    tokens_T = tokenizer.encode_bytes(text)
    order_P = tokens_reaching_into(tokenizer.token_bytes[tokens_T], part)
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
