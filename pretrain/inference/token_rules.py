"""Rules for new tokens: the ones that are not allowed, the one that ends a text, and those that continue a loop."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from data_prep.documents import SPECIAL_TOKENS


def specials_but(kept: str | None) -> tuple[int, ...]:
    """Return the ids of the special tokens, without that of `kept`."""
    return tuple(number for number, token in enumerate(SPECIAL_TOKENS) if token != kept)


@dataclass(frozen=True)
class TokenRules:
    """The tokens that decoding never chooses, and the one that ends a text (chosen, but not part of it)."""

    never: tuple[int, ...] = ()
    end: int | None = None
    may_be_empty: bool = True
    """Whether a text may end before it has a token."""
    max_repeats: int | None = None
    """How often a run of tokens may repeat (see `continuing_a_loop`); None for no limit."""

    @classmethod
    def of_hole(cls, end_hole_id: int | None) -> "TokenRules":
        """Return the rules of a filling, ended by that token if there is one; no hole is empty, as in pretraining."""
        if end_hole_id is None:
            return cls(specials_but(None))
        return cls(specials_but("<end_hole>"), end_hole_id, may_be_empty=False)

    def allow(self, logits_XV: Tensor, written: Sequence[Sequence[int]] | None = None) -> Tensor:
        """Return the logits with minus infinity for tokens that are not allowed next.

        `written` are the tokens of every row's text so far; without them only `never` applies.
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
        """Yield the tokens that are not allowed after this text, besides `never`."""
        if not text and not self.may_be_empty and self.end is not None:
            yield self.end
        if self.max_repeats is not None:
            yield from continuing_a_loop(text, self.max_repeats)


_LONGEST_RUN_TOKENS = 64
_SHORTEST_LOOP_TOKENS = 16
"""The shortest loop: shorter repetitions are ordinary code, such as closing brackets or rows of zeros."""


def continuing_a_loop(text: Sequence[int], max_repeats: int) -> Iterator[int]:
    """Yield every token that would continue a loop: the text ends with a run of at most 64 tokens, repeated
    `max_repeats` (at least 2) times and over at least 16 tokens."""
    for run in range(1, min(_LONGEST_RUN_TOKENS, len(text) // max_repeats) + 1):
        loop = max(run * max_repeats, _SHORTEST_LOOP_TOKENS)
        # The second test is for speed: it rejects most texts.
        if len(text) < loop or text[-1] != text[-1 - run]:
            continue
        if text[-loop:-run] == text[run - loop :]:
            yield text[-run]
