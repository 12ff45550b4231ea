"""Filling of places in a text in any order, the most certain tokens first, several at once.

Shapes: k places of a plan, R places left, T tokens, V vocabulary.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cluster.errors import UserError
from cluster.storage import sha256_bytes
from pretrain.inference.decoder import Decoder
from pretrain.inference.finite import check_finite
from pretrain.inference.generation import NEW_TOKENS, log_probability
from pretrain.inference.hole import EMPTY, Hole, Sides, check_place
from pretrain.inference.open_text import OpenText
from pretrain.inference.sampling import Sampling, pick
from pretrain.inference.token_rules import TokenRules
from pretrain.randomness import key_seed, keyed_generator

FillingOrder = Literal["most_certain", "left_to_right"]

_USUAL_AT_ONCE = 4
"""The number of proposals that fills the most tokens in a time, measured by certainty: benchmarks/infill_passes.py."""


@dataclass(frozen=True)
class AnyOrderFilling:
    """The `tokens` in text order, and the `order` in which their places (0 is the first) were chosen.

    `log_probabilities` (nats, at temperature 1) are those of the tokens, exact for that order. `num_passes` counts runs
    of the model, without the one that reads the context.
    """

    tokens: tuple[int, ...]
    order: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    num_passes: int

    @property
    def log_likelihood(self) -> float:
        """The log-likelihood of all tokens together, in nats."""
        return math.fsum(self.log_probabilities)


def fill_any_order(
    decoder: Decoder,
    sides: Sides,
    length: int,
    sampling: Sampling,
    rules: TokenRules,
    *,
    at_once: int | None = None,
    order: FillingOrder = "most_certain",
    sample: int = 0,
) -> AnyOrderFilling:
    """Fill a hole of `length` tokens, proposing `at_once` tokens at a time: see `fill_places`."""
    if length < 1 or (at_once is not None and at_once < 1):
        raise UserError(f"length and at-once must be at least 1, got {length} and {at_once}")
    check_place(decoder, length)
    shown = Hole(sides, [length]).visible_sides(decoder.segment_tokens)
    row_T = np.concatenate([sides.prefix, np.full(length, EMPTY), shown.suffix])
    start = len(sides.prefix)
    text = OpenText(decoder, row_T, start - len(shown.prefix))
    return fill_places(
        text, range(start, start + length), sampling, rules, at_once=at_once, order=order, sample=sample
    )


@torch.inference_mode()
def fill_places(
    text: OpenText,
    places: Sequence[int],
    sampling: Sampling,
    rules: TokenRules,
    *,
    at_once: int | None = None,
    order: FillingOrder = "most_certain",
    sample: int = 0,
) -> AnyOrderFilling:
    """Fill empty places of a text, by their indices in it, proposing `at_once` tokens at a time (None: 4 by
    certainty, else 1).

    A plan consists of the places of which the model is most certain, or of the next ones as they are listed
    ("left_to_right"). Their tokens are proposed from one pass in which none sees another; the next pass gives each its
    distribution given those before it in the plan. Proposals are accepted in turn with probability min(1, p / q); at
    the first rejection a token is drawn from the rest max(0, p - q), and the remaining places are planned again
    (speculative sampling, Leviathan et al. 2023, section 2.3). So tokens are distributed as if drawn one by one in the
    order of choice; greedily they are the most likely ones.

    By certainty a plan takes two passes of the model. In the listed order it takes one, because the pass that verifies
    also makes the next proposals, for each number of proposals that may be accepted: there is at most one pass more
    than there are tokens.
    """
    check_order(order)
    at_once = at_once or (_USUAL_AT_ONCE if order == "most_certain" else 1)
    filler = _Filler(text, places, sampling, rules, sample)
    if order == "left_to_right":
        filler.choose_in_turn(at_once)
    logits_RV: Tensor | None = None
    while filler.left:
        if logits_RV is None:
            logits_RV = filler.predict_left()
        logits_RV = filler.choose(filler.plan(logits_RV, at_once), logits_RV)
    # Two passes of a plan choose two tokens at least; in turn the first pass may choose none.
    assert filler.num_passes <= len(places) + (order == "left_to_right")
    number = {place: number for number, place in enumerate(sorted(places))}
    return AnyOrderFilling(
        tuple(filler.token_at[place] for place in sorted(places)),
        tuple(number[place] for place in filler.token_at),
        tuple(filler.score_at[place] for place in sorted(places)),
        filler.num_passes,
    )


def check_order(order: str) -> None:
    """Raise UserError for a name that is no order."""
    if order not in get_args(FillingOrder):
        raise UserError(f"order must be one of {', '.join(get_args(FillingOrder))}, got {order!r}")


class _Filler:
    """The state of a filling. `token_at` has the chosen tokens by place, in the order of choice; the session has not
    seen those of `_unwritten`."""

    def __init__(
        self, text: OpenText, places: Sequence[int], sampling: Sampling, rules: TokenRules, sample: int
    ) -> None:
        self._text, self._sampling, self._rules = text, sampling, rules
        content = int(sha256_bytes(text.row_T.tobytes())[:14], 16)
        self._random = keyed_generator(key_seed(sampling.seed, "context", content), "any-order", sample)
        self._device = text.session.model.device
        self._unwritten: list[int] = []
        self.token_at: dict[int, int] = {}
        self.score_at: dict[int, float] = {}
        self.left = list(places)
        self.num_passes = 0

    def predict_left(self) -> Tensor:
        """Return the logits [R, V] of every place that is left, given all chosen tokens."""
        return self._pass({}, self.left, [len(self._unwritten)] * len(self.left))

    def choose_in_turn(self, at_once: int) -> None:
        """Choose the tokens of all places as they are listed."""
        proposed_kV = self._pass({}, self.left[:at_once], [0] * len(self.left[:at_once]))
        is_exact = True
        """Whether the first proposal's logits are given all chosen tokens: then it needs no verification."""
        while True:
            plan = self.left[:at_once]
            q_kV = self._probabilities(proposed_kV)
            proposal_k = pick(q_kV, self._uniforms(len(plan))).tolist()
            if is_exact:
                self._accept(plan[0], proposal_k[0], proposed_kV[0])
                self._unwritten.append(plan[0])
            first = int(is_exact)
            drafts = plan[first:]
            if not self.left:
                return
            after = [self._next(drafts, num_accepted, at_once) for num_accepted in range(len(drafts) + 1)]
            seen_XV = self._verify(drafts, proposal_k[first:], after)
            num_accepted = self._accept_drafts(drafts, proposal_k[first:], q_kV[first:], seen_XV)
            if not self.left:
                return
            start = len(drafts) + sum(map(len, after[:num_accepted]))
            proposed_kV = seen_XV[start : start + len(after[num_accepted])]
            is_exact = num_accepted == len(drafts)

    def _next(self, drafts: Sequence[int], num_accepted: int, at_once: int) -> list[int]:
        """Return the places to propose after so many drafts are accepted; the next draft's token is then replaced."""
        return self.left[min(num_accepted + 1, len(drafts)) :][:at_once]

    def _verify(self, drafts: Sequence[int], tokens: Sequence[int], after: Sequence[Sequence[int]]) -> Tensor:
        """Write what is not written and the drafts; return the logits of drafts and of what comes after each number."""
        num_chosen = len(self._unwritten)
        ranks = [num_chosen + number for number in range(len(drafts))]
        ranks += [num_chosen + number for number, places in enumerate(after) for _ in places]
        predicted = [*drafts, *(place for places in after for place in places)]
        seen_XV = self._pass(dict(zip(drafts, tokens, strict=True)), predicted, ranks)
        self._unwritten = []
        return seen_XV

    def _accept_drafts(
        self, drafts: Sequence[int], tokens: Sequence[int], q_kV: Tensor, seen_XV: Tensor
    ) -> int:
        """Accept drafts up to the first that is rejected, whose token is replaced; return how many are accepted."""
        if not drafts:
            return 0
        p_kV = self._probabilities(seen_XV[: len(drafts)])
        accepts = self._uniforms(len(drafts)).tolist()
        for number, (place, token) in enumerate(zip(drafts, tokens, strict=True)):
            p_V, q_V = p_kV[number], q_kV[number]
            if accepts[number] * float(q_V[token]) < float(p_V[token]):
                self._accept(place, token, seen_XV[number])
                continue
            replaced = int(pick((p_V - q_V).clamp(min=0)[None], self._uniforms(1))[0])
            self._text.session.erase(self._columns(drafts[number:]))
            self._accept(place, replaced, seen_XV[number])
            self._unwritten = [place]
            return number
        return len(drafts)

    def plan(self, logits_RV: Tensor, at_once: int) -> list[int]:
        """Return the places of which the model is most certain, the surest first."""
        surest_R = functional.softmax(self._rules.allow(logits_RV), dim=-1).max(dim=-1).values
        ranked = surest_R.sort(descending=True, stable=True).indices.tolist()
        return [self.left[index] for index in ranked[:at_once]]

    def choose(self, plan: Sequence[int], logits_RV: Tensor) -> Tensor | None:
        """Choose the tokens of a plan as far as proposals are accepted; return the logits of what is left, if known."""
        row_of = {place: row for row, place in enumerate(self.left)}
        proposed_kV = logits_RV[[row_of[place] for place in plan]]
        q_kV = self._probabilities(proposed_kV)
        proposal_k = pick(q_kV, self._uniforms(len(plan)))
        self._accept(plan[0], int(proposal_k[0]), proposed_kV[0])
        if len(plan) == 1:
            self._unwritten = list(plan)
            return None
        drafts, tokens = plan[1:], proposal_k[1:].tolist()
        rest = [place for place in self.left if place not in plan]
        self._unwritten = [plan[0]]
        seen_XV = self._verify(drafts, tokens, [*([] for _ in drafts), rest])
        if self._accept_drafts(drafts, tokens, q_kV[1:], seen_XV) < len(drafts):
            return None
        return seen_XV[len(drafts) :]

    def _accept(self, place: int, token: int, logits_V: Tensor) -> None:
        self.token_at[place] = token
        self.left.remove(place)
        token_1 = torch.tensor([token], device=self._device)
        score_1 = log_probability(logits_V[None], token_1)
        check_finite(score_1, NEW_TOKENS)
        self.score_at[place] = float(score_1)

    def _pass(self, drafts: Mapping[int, int], predicted: Sequence[int], ranks: Sequence[int]) -> Tensor:
        """Write what is not written and the drafts, tokens by place; return the logits of `predicted`."""
        self.num_passes += 1
        written = {place: self.token_at[place] for place in self._unwritten} | dict(drafts)
        return self._text.session.step(
            self._row(list(written.values())),
            self._columns(list(written)),
            self._row(range(len(written))),
            self._columns(predicted),
            self._row(ranks),
        )[0]

    def _columns(self, places: Sequence[int]) -> Tensor:
        return self._row([self._text.column(place) for place in places])

    def _row(self, values: Sequence[int]) -> Tensor:
        return torch.tensor([list(values)], dtype=torch.int64, device=self._device)

    def _uniforms(self, count: int) -> Tensor:
        return torch.from_numpy(np.asarray(self._random.random(count))).to(self._device)

    def _probabilities(self, logits_kV: Tensor) -> Tensor:
        return self._sampling.probabilities(self._rules.allow(logits_kV)).double()
