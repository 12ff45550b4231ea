"""Exact log-likelihoods: of whole texts from left to right, and of any chosen tokens given the rest.

A text is read after an `<eod>`, as documents follow each other in training; the `<eod>` after the text is neither read
nor scored. In a text longer than the model's segment, a prediction sees a window and the model's memory; see
`TokenScores.sees_all`.

Shapes: B lanes, K most likely tokens, L segment, P predicted, T tokens of a text, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cluster.errors import UserError
from pretrain.inference.finite import check_finite
from pretrain.inference.text_batches import TextSegment, text_batches
from pretrain.model.layout import UNFILLED_GROUP, TokenLayout
from pretrain.model.segment_memory import SegmentMemory
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.objective import left_to_right

_MAX_LANES = 16
_MAX_LOGITS = 1 << 27
"""The most logits in memory at once: half a gigabyte in float32."""


@dataclass(frozen=True)
class LikelyTokens:
    """The K most likely tokens in each place, the most likely first, with their natural log-probabilities."""

    token_PK: NDArray[np.int64]
    log_probability_PK: NDArray[np.float64]

    @classmethod
    def empty(cls, num_places: int, k: int) -> "LikelyTokens":
        """Return room for the tokens of so many places."""
        return cls(np.zeros((num_places, k), np.int64), np.zeros((num_places, k)))

    def put(self, first: int, other: "LikelyTokens") -> None:
        """Replace the tokens of places from `first` on."""
        places = slice(first, first + len(other.token_PK))
        self.token_PK[places] = other.token_PK
        self.log_probability_PK[places] = other.log_probability_PK

    def after(self, num_places: int) -> "LikelyTokens":
        """Return those of all but the first places."""
        return LikelyTokens(self.token_PK[num_places:], self.log_probability_PK[num_places:])


@dataclass(frozen=True)
class TokenScores:
    """The log-probabilities (natural) of tokens, each given the tokens before it in the order.

    `index_P` are indices in the text, in the order of prediction; `log_probability_P` is float64. `sees_all`: every
    prediction saw all of the text that its order allows. `likely`: what the model finds most likely in each place, if
    it was asked for.
    """

    index_P: NDArray[np.int64]
    log_probability_P: NDArray[np.float64]
    sees_all: bool
    likely: LikelyTokens | None = None

    @property
    def log_likelihood(self) -> float:
        """The log-likelihood of all tokens together, in nats."""
        return math.fsum(self.log_probability_P)

    @property
    def bits(self) -> float:
        """The negative log-likelihood of all tokens together, in bits."""
        return -self.log_likelihood / math.log(2.0)

    @property
    def perplexity(self) -> float:
        """The perplexity per token; 1 without tokens."""
        return perplexity(self.log_likelihood, len(self.index_P))


def perplexity(log_likelihood: float, num_tokens: int) -> float:
    """Return the perplexity per token from nats; 1 without tokens, infinity on overflow."""
    try:
        return math.exp(-log_likelihood / max(1, num_tokens))
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class _Window:
    """A part of a text that is read separately; its tokens from `scored_from` on are scored."""

    text: int
    first: int
    scored_from: int
    tokens_T: NDArray[np.int64]


@torch.inference_mode()
def score_left_to_right(
    model: TwoStreamTransformer,
    texts: Sequence[NDArray[np.integer]],
    eod_id: int,
    segment_tokens: int,
    num_likely: int = 0,
    after_segment: Callable[[], None] = lambda: None,
) -> list[TokenScores]:
    """Score every token of every text given those before it, reading texts in segments with the model's memory.

    A model without memory reads segments that overlap by half, so that a prediction sees at least half a segment
    before it. With `num_likely` the scores have that many most likely tokens of every place. `after_segment` is called
    after every segment of a batch of texts. The model must be in evaluation mode. Raises UserError for results that are
    not finite.
    """
    rows = [after_eod(tokens_T, eod_id) for tokens_T in texts]
    has_memory = model.config.memory_tokens > 0
    windows = [
        window
        for text, row_T in enumerate(rows)
        for window in ([_Window(text, 0, 0, row_T)] if has_memory else _halves(text, row_T, segment_tokens))
    ]
    scores = [np.zeros(len(row_T)) for row_T in rows]
    likely = [LikelyTokens.empty(len(row_T), min(num_likely, model.vocab_size)) for row_T in rows]
    lanes = max(1, min(_MAX_LANES, _MAX_LOGITS // (segment_tokens * model.vocab_size)))
    for batch in text_batches([window.tokens_T for window in windows], lanes, segment_tokens):
        memory = model.empty_memory(lanes)
        for segment in batch:
            memory = memory.lanes(0, len(segment.numbers))
            parts, memory = _score_segment(model, segment, memory, eod_id, min(num_likely, model.vocab_size))
            for number, (part_L, likely_L) in zip(segment.numbers, parts, strict=True):
                window = windows[number]
                skipped = max(0, window.scored_from - segment.first)
                first = window.first + segment.first + skipped
                scores[window.text][first : first + len(part_L) - skipped] = part_L[skipped:]
                likely[window.text].put(first, likely_L.after(skipped))
            after_segment()
    for number, score_T in enumerate(scores, start=1):
        check_finite(score_T, f"the log-probabilities of text {number}")
    return [
        TokenScores(
            np.arange(len(score_T) - 1),
            score_T[1:],
            len(score_T) <= segment_tokens,
            likely_T.after(1) if num_likely else None,
        )
        for score_T, likely_T in zip(scores, likely, strict=True)
    ]


def after_eod(tokens_T: NDArray[np.integer], eod_id: int) -> NDArray[np.int64]:
    return np.concatenate([[eod_id], tokens_T]).astype(np.int64)


def _halves(text: int, row_T: NDArray[np.int64], segment_tokens: int) -> Iterator[_Window]:
    """Yield windows of at most a segment; all but the first score only tokens after the previous window."""
    step = max(1, segment_tokens // 2)
    yield _Window(text, 0, 0, row_T[:segment_tokens])
    for end in range(segment_tokens + step, len(row_T) + step, step):
        last = min(end, len(row_T))
        first = last - segment_tokens
        yield _Window(text, first, end - step - first, row_T[first:last])


def _score_segment(
    model: TwoStreamTransformer, segment: TextSegment, memory: SegmentMemory, eod_id: int, num_likely: int
) -> tuple[list[tuple[NDArray[np.float64], LikelyTokens]], SegmentMemory]:
    """Return the log-probabilities of each lane's tokens without padding, the likely ones in their places, and the
    memory after the segment.
    """
    tokens_BL, group_BL = segment.tokens_BL.to(model.device), segment.group_BL.to(model.device)
    content = left_to_right(group_BL, documents_of(model, tokens_BL, eod_id))
    output = model(tokens_BL, content, content, memory)
    num_tokens_B = (segment.group_BL != UNFILLED_GROUP).sum(dim=1).tolist()
    parts = [
        (
            _log_probabilities(logits_PV[:num_tokens], wanted_P[:num_tokens]),
            _likely_tokens(logits_PV[:num_tokens], num_likely),
        )
        for logits_PV, wanted_P, num_tokens in zip(output.logits_BPV, tokens_BL, num_tokens_B, strict=True)
    ]
    return parts, output.memory


def documents_of(model: TwoStreamTransformer, tokens_BL: Tensor, eod_id: int) -> Tensor | None:
    """Return the documents of tokens: the text is one document, the `<eod>` before it belongs to another."""
    return (tokens_BL != eod_id).long() if model.config.segment_encodings else None


def _log_probabilities(logits_PV: Tensor, wanted_P: Tensor) -> NDArray[np.float64]:
    wanted_P1 = wanted_P[:, None]
    scores: NDArray[np.float64] = (
        logits_PV.double().log_softmax(dim=-1).gather(1, wanted_P1)[:, 0].cpu().numpy()
    )
    return scores


def _likely_tokens(logits_PV: Tensor, k: int) -> LikelyTokens:
    if k == 0:
        return LikelyTokens.empty(len(logits_PV), 0)
    top = logits_PV.double().log_softmax(dim=-1).topk(k, dim=-1)
    return LikelyTokens(top.indices.cpu().numpy(), top.values.cpu().numpy())


@torch.inference_mode()
def score_chosen(
    model: TwoStreamTransformer,
    tokens_T: NDArray[np.integer],
    order_P: NDArray[np.integer],
    eod_id: int,
    segment_tokens: int,
) -> TokenScores:
    """Score the chosen tokens in the given order, each given all tokens that are not chosen, on both sides, and the
    chosen ones before it in the order.

    A text that does not fit into a segment is read in windows around the chosen tokens: text before a window fills
    the model's memory, text after it is not seen. The model must be in evaluation mode. Raises UserError when the order
    has a token twice or one that the text does not have, and for results that are not finite.
    """
    _check_order(order_P, len(tokens_T))
    row_T = after_eod(tokens_T, eod_id)
    is_hidden_T = np.zeros(len(row_T), dtype=bool)
    is_hidden_T[order_P + 1] = True
    scores: list[NDArray[np.float64]] = []
    for piece_P in _pieces(order_P.astype(np.int64) + 1, len(row_T), segment_tokens):
        is_hidden_T[piece_P] = False
        scores.append(_score_piece(model, row_T, piece_P, is_hidden_T, segment_tokens, eod_id))
    log_probability_P = np.concatenate(scores) if scores else np.zeros(0)
    check_finite(log_probability_P, "the log-probabilities of the chosen tokens")
    return TokenScores(order_P.astype(np.int64), log_probability_P, sees_all=len(row_T) <= segment_tokens)


def _check_order(order_P: NDArray[np.integer], num_tokens: int) -> None:
    outside = [int(index) for index in order_P if not 0 <= index < num_tokens]
    if outside:
        raise UserError(f"token {outside[0]} is outside the text: it has {num_tokens} tokens, counted from 0")
    if len(np.unique(order_P)) < len(order_P):
        raise UserError("the order names a token twice: every chosen token is predicted once")


def _pieces(order_P: NDArray[np.int64], num_tokens: int, segment_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Yield runs of the order that fit a window with some text around them; the whole order if the text fits."""
    span = num_tokens if num_tokens <= segment_tokens else max(1, segment_tokens // 2)
    first = 0
    while first < len(order_P):
        rest_P = order_P[first:]
        extent_P = np.maximum.accumulate(rest_P) - np.minimum.accumulate(rest_P)
        num_fitting = int(np.searchsorted(extent_P, span))
        yield rest_P[:num_fitting]
        first += num_fitting


def _score_piece(
    model: TwoStreamTransformer,
    row_T: NDArray[np.int64],
    piece_P: NDArray[np.int64],
    is_hidden_T: NDArray[np.bool_],
    segment_tokens: int,
    eod_id: int,
) -> NDArray[np.float64]:
    """Return the log-probabilities of the piece's tokens, in its order; hidden tokens are not visible."""
    middle = (int(piece_P.min()) + int(piece_P.max()) + 1) // 2
    start = max(0, min(middle - segment_tokens // 2, len(row_T) - segment_tokens))
    window_T = slice(start, start + segment_tokens)
    memory = _memory_before(model, row_T[:start], is_hidden_T[:start], segment_tokens, eod_id)
    tokens_BL = torch.from_numpy(row_T[None, window_T]).to(model.device)
    group_BL = _group(is_hidden_T[window_T]).to(model.device)
    target_BP = torch.from_numpy(piece_P[None] - start).to(model.device)
    rank_BP = torch.arange(1, len(piece_P) + 1, device=model.device)[None]
    rank_BL = model.context_ranks(torch.zeros_like(tokens_BL).scatter(1, target_BP, rank_BP))
    content = TokenLayout.contiguous(rank_BL, group_BL, documents_of(model, tokens_BL, eod_id))
    output = model(tokens_BL, content, content.at(target_BP), memory)
    return _log_probabilities(output.logits_BPV[0], tokens_BL.gather(1, target_BP)[0])


def _memory_before(
    model: TwoStreamTransformer,
    row_T: NDArray[np.int64],
    is_hidden_T: NDArray[np.bool_],
    segment_tokens: int,
    eod_id: int,
) -> SegmentMemory:
    """Return the memory of the last M tokens of `row_T`, each read after at least a segment of text."""
    memory = model.empty_memory(1)
    if memory.memory_tokens == 0:
        return memory
    wanted = min(len(row_T), memory.memory_tokens + segment_tokens)
    for start in range(len(row_T) - wanted, len(row_T), segment_tokens):
        part_T = slice(start, start + segment_tokens)
        memory = memory_after(model, row_T[part_T], is_hidden_T[part_T], memory, eod_id)
    return memory


def memory_after(
    model: TwoStreamTransformer,
    tokens_T: NDArray[np.int64],
    is_hidden_T: NDArray[np.bool_],
    memory: SegmentMemory,
    eod_id: int,
) -> SegmentMemory:
    """Return the memory after more text, which is read as a context; hidden tokens are not visible."""
    group_BL = _group(is_hidden_T).to(model.device)
    tokens_BL = torch.from_numpy(tokens_T[None]).to(model.device)
    documents_BL = documents_of(model, tokens_BL, eod_id)
    ranks_BL = model.context_ranks(torch.zeros_like(group_BL))
    content = TokenLayout.contiguous(ranks_BL, group_BL, documents_BL)
    return memory.advanced(model.read(tokens_BL, content, memory), content)


def _group(is_hidden_L: NDArray[np.bool_]) -> Tensor:
    return torch.from_numpy(np.where(is_hidden_L, UNFILLED_GROUP, 0)[None])
