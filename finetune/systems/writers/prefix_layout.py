"""Source and target as one text for the permutation LM: the source is context, the target is predicted in order.

Without a suffix, of a source of n and a target of m tokens:

    token      <eod>  source  <sep>  target     [end]
    position   0      1 ... n n+1    n+2 ...    n+2+m
    rank       0      0       0      1 ... m    m+1

A hole of m tokens, with a gap of s positions that hides its length (see `pretrain.orders.infill`):

    token      <eod>  prefix  target    [end]   suffix     <eod>
    position   0      1 ... n n+1 ...   n+1+m   n+1+m+s ...
    rank       0      0       1 ... m   m+1     0          0

In brackets: predicted, but not a token of the input. The end is `<eod>`, or `<end_hole>` for a hole.

Shapes: B lanes, L tokens, P predictions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from data_prep.tokenizer import CodeTokenizer
from finetune.systems.writers.sequences import Source, Target, Tokens
from pretrain.model.layout import UNFILLED_GROUP, TokenLayout

MAX_GAP_TOKENS = 32
"""The largest gap of a hole, as in pretraining."""
_LENGTH_UNIT = 32


@dataclass(frozen=True)
class PrefixExample:
    """The tokens of one example with their positions and ranks, and the tokens to predict."""

    tokens_L: Tokens
    position_L: Tokens
    rank_L: Tokens
    start: int
    """Position of the first prediction; the others follow, at ranks 1, 2, ..."""
    wanted_P: Tokens


@dataclass(frozen=True)
class PrefixBatch:
    """The input of the network: examples side by side, padded with masked places."""

    tokens_BL: Tensor
    content: TokenLayout
    targets: TokenLayout
    is_wanted_BP: Tensor
    """Whether there is a prediction."""
    wanted_X: Tensor
    """The tokens of all predictions, lane after lane."""


class PrefixLayout:
    """Lays out texts with a tokenizer's special tokens."""

    def __init__(self, tokenizer: CodeTokenizer, *, separated: bool) -> None:
        self._eod, self._end_hole = tokenizer.eod_id, tokenizer.special_id("<end_hole>")
        self._separator = [tokenizer.special_id("<sep>")] if separated else []

    def prompt(self, source: Source) -> Tokens:
        """Return the tokens before the target, or before a hole."""
        separator = self._separator if source.after_T is None else []
        return np.concatenate([[self._eod], source.before_T, separator]).astype(np.int64)

    def suffix(self, source: Source) -> Tokens:
        """Return the tokens after a hole."""
        assert source.after_T is not None
        return source.after_T if source.after_is_cut else np.append(source.after_T, self._eod)

    def lay_out(self, source: Source, target: Target, gap: int) -> PrefixExample:
        """Return the layout of one example; `gap` has an effect for a hole only."""
        prompt_T = self.prompt(source)
        start, num_written = len(prompt_T), len(target.tokens_T)
        if source.after_T is None:
            tokens_L, suffix_T = np.concatenate([prompt_T, target.tokens_T]), prompt_T[:0]
            wanted_P = target.ended(self._eod)
        else:
            suffix_T = self.suffix(source)
            tokens_L = np.concatenate([prompt_T, target.tokens_T, suffix_T])
            wanted_P = target.ended(self._end_hole)
        index_L = np.arange(len(tokens_L))
        in_target_L = (index_L >= start) & (index_L < start + num_written)
        return PrefixExample(
            tokens_L,
            index_L + gap * (index_L >= start + num_written),
            np.where(in_target_L, index_L - start + 1, 0),
            start,
            wanted_P,
        )


def side_by_side(
    examples: Sequence[PrefixExample],
    *,
    with_documents: bool,
    device: torch.device,
    rounds_extent: bool = True,
) -> PrefixBatch:
    """Return the examples as one batch.

    With documents the first token belongs to the previous document, as in pretraining. `rounds_extent` is for positions
    that reach any distance; rounding could exceed a table of absolute ones.
    """
    num_tokens = _rounded(max(len(one.tokens_L) for one in examples))
    num_predicted = _rounded(max(len(one.wanted_P) for one in examples))
    tokens_BL = _filled([one.tokens_L for one in examples], num_tokens, 0)
    position_BL = _filled([one.position_L for one in examples], num_tokens, 0)
    rank_BL = _filled([one.rank_L for one in examples], num_tokens, 0)
    group_BL = _filled([np.zeros_like(one.tokens_L) for one in examples], num_tokens, UNFILLED_GROUP)

    number_P = np.arange(num_predicted)
    start_B1 = np.array([[one.start] for one in examples])
    is_wanted_BP = number_P < np.array([[len(one.wanted_P)] for one in examples])
    predicted_BP = np.where(is_wanted_BP, start_B1 + number_P, 0)
    target_rank_BP = np.where(is_wanted_BP, number_P + 1, 0)
    target_group_BP = np.where(is_wanted_BP, 0, UNFILLED_GROUP)
    extent = int(max(position_BL.max(), predicted_BP.max())) + 1
    if rounds_extent:
        extent = _rounded(extent)

    def places(position: Tokens, rank: Tokens, group: Tokens) -> TokenLayout:
        document = on_device((position > 0).astype(np.int64)) if with_documents else None
        return TokenLayout(on_device(position), on_device(rank), on_device(group), document, extent)

    def on_device(array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(device)

    return PrefixBatch(
        on_device(tokens_BL),
        places(position_BL, rank_BL, group_BL),
        places(predicted_BP, target_rank_BP, target_group_BP),
        torch.from_numpy(is_wanted_BP).to(device),
        torch.from_numpy(np.concatenate([one.wanted_P for one in examples])).to(device),
    )


def _rounded(length: int) -> int:
    """Round up to a multiple of `_LENGTH_UNIT`: data per shape are cached, so fewer shapes need less memory."""
    return -(-length // _LENGTH_UNIT) * _LENGTH_UNIT


def _filled(rows: Sequence[Tokens], length: int, value: int) -> NDArray[np.int64]:
    filled = np.full((len(rows), length), value, dtype=np.int64)
    for row, values in zip(filled, rows, strict=True):
        row[: len(values)] = values
    return filled
