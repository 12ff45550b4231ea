"""Log-probabilities of lines, each given the rest of its text.

A line that is predicted is *hidden*: no token of the rest attends to it, so the text is read once per line, in lanes
side by side. The line's tokens are predicted left to right from the rest and from those before them.

Where lines share a pass, which is faster, each is predicted from the rest and the hidden lines before it, not from
those after it.

A text longer than a segment is read in windows of a segment that overlap by half. A line is predicted in the window
whose middle is nearest, with the model's memory of all text before the window; text after the window is not seen. A
line of more than half a segment is predicted in parts, from the first to the last.

Shapes: B lanes, L segment, P predicted, T tokens of a text after its `<eod>`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from pretrain.inference.finite import check_finite
from pretrain.inference.generation import log_probability
from pretrain.inference.scoring import after_eod, documents_of, memory_after
from pretrain.model.layout import UNFILLED_GROUP, TokenLayout
from pretrain.model.segment_memory import SegmentMemory, concatenate
from pretrain.model.transformer import TwoStreamTransformer

_MAX_LANES = 16
_MAX_LOGITS = 1 << 26
"""The most logits in memory at once: a quarter of a gigabyte in float32."""
_SORTED_BATCHES = 4
"""So many batches of passes are sorted by their numbers of predictions, so that little is padded."""


@dataclass(frozen=True)
class TextLines:
    """The tokens of a text, and for each line to predict the range of its tokens; ranges ascend."""

    tokens_T: NDArray[np.integer]
    lines: Sequence[range]


@dataclass(frozen=True)
class _Part:
    """Tokens [first, end) of a line that are predicted together; its tokens [end, line_end) stay hidden."""

    line: int
    first: int
    end: int
    line_end: int


@dataclass
class _Pass:
    """A window, which begins at token `start` of a text, with the parts to predict in it."""

    text: int
    start: int
    tokens_T: NDArray[np.int64]
    memory: SegmentMemory
    parts: list[_Part] = field(default_factory=list)

    @property
    def num_predicted(self) -> int:
        return sum(part.end - part.first for part in self.parts)


@torch.inference_mode()
def score_hidden_lines(
    model: TwoStreamTransformer,
    texts: Sequence[TextLines],
    eod_id: int,
    segment_tokens: int,
    lines_apart: int | None = None,
    after_batch: Callable[[], None] = lambda: None,
) -> list[NDArray[np.float64]]:
    """Return the natural log-probability of every token of every text [T], NaN for tokens that are in no line.

    Every line has a pass of its own, or shares it with others that are at least `lines_apart` lines away. Results do
    not depend on the other texts. `after_batch` is called after every batch of passes. The model must be in evaluation
    mode. Raises UserError for results that are not finite.
    """
    rows = [after_eod(text.tokens_T, eod_id) for text in texts]
    found = [np.full(len(row_T), np.nan) for row_T in rows]
    passes = (
        one
        for number, row_T in enumerate(rows)
        for one in _passes(model, number, row_T, texts[number].lines, eod_id, segment_tokens, lines_apart)
    )
    for batch in _batches(passes, model.vocab_size):
        for one, score_P in zip(batch, _score(model, batch, eod_id), strict=True):
            first = 0
            for part in one.parts:
                end = first + part.end - part.first
                found[one.text][part.first : part.end] = score_P[first:end]
                first = end
        after_batch()
    for number, (text, score_T) in enumerate(zip(texts, found, strict=True), start=1):
        for line in text.lines:
            check_finite(score_T[line.start + 1 : line.stop + 1], f"the log-probabilities of text {number}")
    return [score_T[1:] for score_T in found]


def _passes(
    model: TwoStreamTransformer,
    text: int,
    row_T: NDArray[np.int64],
    lines: Sequence[range],
    eod_id: int,
    segment_tokens: int,
    lines_apart: int | None,
) -> Iterator[_Pass]:
    """Yield the passes of a text, window by window; `row_T` is the text after its `<eod>`."""
    stride = max(1, segment_tokens // 2)
    last_window = max(0, -(-(len(row_T) - segment_tokens) // stride))
    parts_of: list[list[_Part]] = [[] for _ in range(last_window + 1)]
    most_tokens = stride if last_window else segment_tokens
    for part in _parts(lines, most_tokens):
        middle = (part.first + part.end - segment_tokens) / 2
        parts_of[min(last_window, max(0, round(middle / stride)))].append(part)
    memory = model.empty_memory(1)
    for window, parts in enumerate(parts_of):
        start = window * stride
        if window and memory.memory_tokens:
            read_T = row_T[start - stride : start]
            memory = memory_after(model, read_T, np.zeros(len(read_T), dtype=bool), memory, eod_id)
        yield from _window_passes(
            text, start, row_T[start : start + segment_tokens], memory, parts, lines_apart
        )


def _parts(lines: Sequence[range], most_tokens: int) -> Iterator[_Part]:
    """Yield the lines as parts of at most `most_tokens` tokens; indices are those of the row after its `<eod>`."""
    for number, line in enumerate(lines):
        for first in range(line.start + 1, line.stop + 1, most_tokens):
            yield _Part(number, first, min(first + most_tokens, line.stop + 1), line.stop + 1)


def _window_passes(
    text: int,
    start: int,
    tokens_T: NDArray[np.int64],
    memory: SegmentMemory,
    parts: Sequence[_Part],
    lines_apart: int | None,
) -> Iterator[_Pass]:
    """Yield as few passes as hide every part once."""
    passes: list[_Pass] = []
    for part in parts:
        with_room = None
        if lines_apart is not None:
            with_room = next((one for one in passes if part.line - one.parts[-1].line >= lines_apart), None)
        if with_room is None:
            with_room = _Pass(text, start, tokens_T, memory)
            passes.append(with_room)
        with_room.parts.append(part)
    yield from passes


def _batches(passes: Iterator[_Pass], vocab_size: int) -> Iterator[list[_Pass]]:
    """Yield batches of passes with similar numbers of predictions."""
    waiting: list[_Pass] = []
    for one in passes:
        waiting.append(one)
        if len(waiting) == _SORTED_BATCHES * _MAX_LANES:
            yield from _sorted_batches(waiting, vocab_size)
            waiting = []
    yield from _sorted_batches(waiting, vocab_size)


def _sorted_batches(passes: Sequence[_Pass], vocab_size: int) -> Iterator[list[_Pass]]:
    most_first = sorted(passes, key=lambda one: -one.num_predicted)
    first = 0
    while first < len(most_first):
        lanes = min(_MAX_LANES, max(1, _MAX_LOGITS // (most_first[first].num_predicted * vocab_size)))
        yield most_first[first : first + lanes]
        first += lanes


def _score(model: TwoStreamTransformer, batch: Sequence[_Pass], eod_id: int) -> list[NDArray[np.float64]]:
    """Return the log-probabilities of every pass's predictions, in their order."""
    num_predicted = max(one.num_predicted for one in batch)
    shape = (len(batch), max(len(one.tokens_T) for one in batch))
    tokens_BL, rank_BL = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    group_BL = np.full(shape, UNFILLED_GROUP)
    target_BP = np.zeros((len(batch), num_predicted), dtype=np.int64)
    for lane, one in enumerate(batch):
        length = len(one.tokens_T)
        tokens_BL[lane, :length] = one.tokens_T
        group_BL[lane, :length] = 0
        for part in one.parts:
            group_BL[lane, part.end - one.start : part.line_end - one.start] = UNFILLED_GROUP
        target_P = np.concatenate([np.arange(part.first, part.end) for part in one.parts]) - one.start
        rank_BL[lane, target_P] = np.arange(1, len(target_P) + 1)
        target_BP[lane, : len(target_P)] = target_P
    tokens, ranks, groups, targets = (
        torch.from_numpy(one).to(model.device) for one in (tokens_BL, rank_BL, group_BL, target_BP)
    )
    ranks = model.context_ranks(ranks)
    content = TokenLayout.contiguous(ranks, groups, documents_of(model, tokens, eod_id))
    memory = concatenate([one.memory for one in batch])
    logits_BPV = model(tokens, content, content.at(targets), memory).logits_BPV
    wanted_BP = tokens.gather(1, targets)
    score_BP = log_probability(logits_BPV.flatten(0, 1), wanted_BP.flatten()).view(wanted_BP.shape)
    scores = score_BP.double().cpu().numpy()
    return [scores[lane, : one.num_predicted] for lane, one in enumerate(batch)]
