"""Scans of texts: how much each line surprises a model that sees the rest of the text.

A token belongs to the line in which it begins, so a line's line end is its own; blank lines are not scored.

Shapes: P tokens of a line, T tokens of a text, N lines.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from data_prep.tokenizer import CodeTokenizer
from pretrain.inference.hidden_lines import TextLines, score_hidden_lines
from pretrain.inference.scoring import score_left_to_right
from pretrain.inference.text_ranges import ByteRange, line_ends
from pretrain.model.transformer import TwoStreamTransformer

FAST_LINES_APART = 2
"""The distance of lines that share a pass in the fast form: at least one line between them is seen."""


@dataclass(frozen=True)
class ScannedLine:
    """A line, counted from 1. `tokens` are the indices of its tokens in the text, `bytes` what these spell.

    That is the line with its line end, unless a token reaches into two lines.

    `given_rest_P` are the tokens' natural log-probabilities given the rest of the text and the line's tokens before
    them; `given_before_P` given the text before them alone.
    """

    number: int
    bytes: ByteRange
    tokens: range
    given_rest_P: NDArray[np.float64]
    given_before_P: NDArray[np.float64]

    @property
    def log_probability(self) -> float:
        """The natural log-probability of the line given the rest of the text."""
        return math.fsum(self.given_rest_P)

    @property
    def log_probability_before(self) -> float:
        """The natural log-probability of the line given the text before it."""
        return math.fsum(self.given_before_P)

    @property
    def surprise_bits(self) -> float:
        """The figure by which lines are ranked: the bits of the line given the rest of the text."""
        return -self.log_probability / math.log(2.0)


@dataclass(frozen=True)
class ScannedText:
    """The scored lines of a text, in its order. `sees_all`: every prediction saw all of the rest."""

    lines: tuple[ScannedLine, ...]
    num_tokens: int
    sees_all: bool

    def ranked(self) -> list[ScannedLine]:
        """Return the lines, the most surprising first."""
        return sorted(self.lines, key=lambda line: -line.surprise_bits)


def scan_texts(
    model: TwoStreamTransformer,
    tokenizer: CodeTokenizer,
    texts: Sequence[bytes],
    segment_tokens: int,
    *,
    fast: bool = False,
    after_batch: Callable[[], None] = lambda: None,
) -> list[ScannedText]:
    """Score every line of every text that is not blank given the rest: see `score_hidden_lines`.

    With `fast` several distant lines are hidden in one pass. `after_batch` is called after every batch of passes.
    Raises UserError for an empty text.
    """
    if not all(texts):
        raise UserError("the text is empty: there is nothing to scan")
    tokens = tokenizer.encode_bytes_batch(texts)
    found = [
        _lines(text, tokenizer.token_bytes[tokens_T]) for text, tokens_T in zip(texts, tokens, strict=True)
    ]
    hidden = [
        TextLines(tokens_T, [line for _, _, line in lines])
        for tokens_T, lines in zip(tokens, found, strict=True)
    ]
    lines_apart = FAST_LINES_APART if fast else None
    given_rest = score_hidden_lines(model, hidden, tokenizer.eod_id, segment_tokens, lines_apart, after_batch)
    given_before = score_left_to_right(
        model, tokens, tokenizer.eod_id, segment_tokens, after_segment=after_batch
    )
    return [
        ScannedText(
            tuple(
                ScannedLine(
                    number,
                    part,
                    line,
                    rest_T[line.start : line.stop],
                    before.log_probability_P[line.start : line.stop],
                )
                for number, part, line in lines
            ),
            len(tokens_T),
            before.sees_all,
        )
        for tokens_T, lines, rest_T, before in zip(tokens, found, given_rest, given_before, strict=True)
    ]


def _lines(text: bytes, num_bytes_T: NDArray[np.int64]) -> list[tuple[int, ByteRange, range]]:
    """Return number, bytes and tokens of every line that is not blank and in which a token begins."""
    end_N = np.array(line_ends(text))
    boundary_T = np.concatenate([[0], np.cumsum(num_bytes_T)])
    first_token_N = np.searchsorted(boundary_T[:-1], np.concatenate([[0], end_N]))
    found, start = [], 0
    for number, end in enumerate(end_N.tolist(), start=1):
        tokens = range(int(first_token_N[number - 1]), int(first_token_N[number]))
        if tokens and text[start:end].strip():
            spelled = ByteRange(int(boundary_T[tokens.start]), int(boundary_T[tokens.stop]))
            found.append((number, spelled, tokens))
        start = end
    return found
