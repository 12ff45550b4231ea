"""Which tokens may be written, which end a text, and which would continue a loop."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from data_prep.documents import SPECIAL_TOKENS


def specials_but(kept: str | None) -> tuple[int, ...]:
    """The special tokens' numbers, without that of `kept`."""
    return tuple(number for number, token in enumerate(SPECIAL_TOKENS) if token != kept)


@dataclass(frozen=True)
class TokenRules:
    """Tokens that decoding never chooses, and the one that ends a text (chosen, but not part of it)."""

    never: tuple[int, ...] = ()
    end: int | None = None
    may_be_empty: bool = True
    """Whether a text may end before it has a token."""
    max_repeats: int | None = None
    """How often a run of tokens may stand in a row (see `continuing_a_loop`); None: as often as the model likes."""

    def allow(self, logits_XV: Tensor, written: Sequence[Sequence[int]] | None = None) -> Tensor:
        """The scores with those of tokens that may not follow at minus infinity.

        `written` are the tokens of every row's text so far; without them only `never` counts.
        """
        if self.never:
            never = torch.tensor(self.never, device=logits_XV.device)
            logits_XV = logits_XV.index_fill(-1, never, -torch.inf)
        refused = [(row, token) for row, text in enumerate(written or ()) for token in self._refused(text)]
        if not refused:
            return logits_XV
        row_R, token_R = torch.tensor(refused, device=logits_XV.device).unbind(1)
        return logits_XV.index_put((row_R, token_R), logits_XV.new_tensor(-torch.inf))

    def _refused(self, text: Sequence[int]) -> Iterable[int]:
        """What may not follow this text, besides `never`."""
        if not text and not self.may_be_empty and self.end is not None:
            yield self.end
        if self.max_repeats is not None:
            yield from continuing_a_loop(text, self.max_repeats)


_LONGEST_RUN_TOKENS = 64
_SHORTEST_LOOP_TOKENS = 16
"""Shorter repetitions are ordinary code: brackets that close, rows of zeros."""


def continuing_a_loop(text: Sequence[int], max_repeats: int) -> Iterator[int]:
    """Every token that would go on with a loop: a run of at most 64 tokens with which the text ends, again and again
    for `max_repeats` (from 2 on) runs and at least 16 tokens."""
    for run in range(1, min(_LONGEST_RUN_TOKENS, len(text) // max_repeats) + 1):
        loop = max(run * max_repeats, _SHORTEST_LOOP_TOKENS)
        if len(text) < loop or text[-1] != text[-1 - run]:  # the latter for speed: few texts come past it
            continue
        if text[-loop:-run] == text[run - loop :]:
            yield text[-run]
