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

from cluster.errors import UserError
from cluster.storage import sha256_bytes
from pretrain.inference.decoder import Decoder
from pretrain.inference.finite import check_finite
from pretrain.inference.generation import NEW_TOKENS, log_probability
from pretrain.inference.hole import EMPTY, Hole, Sides, check_place
from pretrain.inference.open_text import OpenText
from pretrain.inference.sampling import Sampling, pick
from pretrain.inference.token_rules import TokenRules
from pretrain.model.precision import at_least_float32
from pretrain.randomness import key_seed, keyed_generator

FillingOrder = Literal["most_certain", "left_to_right"]

_USUAL_AT_ONCE = 2
"""By certainty, measured: 2 and 3 are the fastest (benchmarks/results.md, "Passes of infilling")."""


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
    """Fill empty places of a text, by their indices in it, at most `at_once` of them in a pass of the model (None: 2 by
    certainty, else 1).

    A plan consists of the places of which the model is most certain, or of the next ones as they are listed
    ("left_to_right"). Their tokens are proposed from one pass in which none sees another. The next pass gives each its
    distribution given those before it in the plan, and predicts the places of the next plan for every number of
    proposals that may be accepted. Proposals are accepted in turn with probability min(1, p / q); at the first
    rejection a token is drawn from the rest max(0, p - q) (speculative sampling, Leviathan et al. 2023, section 2.3).
    So tokens are distributed as if drawn one by one in the order of choice; greedily they are the most likely ones.
    There are at most as many passes as tokens.

    By certainty, all places that are left are predicted anew in every pass if `at_once` is 1, otherwise `at_once` + 1
    of them: those of which the model was most certain when it last predicted them.
    """
    check_order(order)
    by_certainty = order == "most_certain"
    filler = _Filler(text, places, sampling, rules, sample, by_certainty)
    filler.fill(at_once or (_USUAL_AT_ONCE if by_certainty else 1))
    assert filler.num_passes <= len(places), "every pass chooses a token"
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


@dataclass(frozen=True)
class _Predictions:
    """What the model predicts of some places: the logits, also without tokens that are not allowed, the likeliest token
    of each place and its probability. They are `exact` if the model saw all tokens that were chosen."""

    places: Sequence[int]
    logits_XV: Tensor
    allowed_XV: Tensor
    token_X: Sequence[int]
    probability_X: Sequence[float]
    exact: bool

    def part(self, first: int, places: Sequence[int], exact: bool) -> "_Predictions":
        """Return the rows from `first` on, which are those of `places`."""
        own = slice(first, first + len(places))
        return _Predictions(
            places,
            self.logits_XV[own],
            self.allowed_XV[own],
            self.token_X[own],
            self.probability_X[own],
            exact,
        )


class _Filler:
    """The state of a filling. `token_at` has the chosen tokens by place, in the order of choice; the session has not
    seen those of `_unwritten`."""

    def __init__(
        self,
        text: OpenText,
        places: Sequence[int],
        sampling: Sampling,
        rules: TokenRules,
        sample: int,
        by_certainty: bool,
    ) -> None:
        self._text, self._sampling, self._rules, self._by_certainty = text, sampling, rules, by_certainty
        content = int(sha256_bytes(text.row_T.tobytes())[:14], 16)
        self._random = keyed_generator(key_seed(sampling.seed, "context", content), "any-order", sample)
        self._device = text.session.model.device
        self._unwritten: list[int] = []
        self._unscored: list[tuple[int, Tensor]] = []
        """Places and the logits of which their tokens were chosen."""
        self._left = list(places)
        self._certainty: dict[int, float] = {}
        """The probability of the likeliest token of places, as it was when they were last predicted."""
        self.token_at: dict[int, int] = {}
        self.score_at: dict[int, float] = {}
        self.num_passes = 0

    def fill(self, at_once: int) -> None:
        """Choose the tokens of all places."""
        num_next = None if self._by_certainty and at_once == 1 else at_once + self._by_certainty
        first = self._left if self._by_certainty else self._left[:at_once]
        newest = self._pass({}, first, [0] * len(first), exact=True)
        self._certainty |= zip(newest.places, newest.probability_X, strict=True)
        while True:
            rows = self._plan(newest, at_once)
            plan, (token_k, q_kV) = [newest.places[row] for row in rows], self._propose(newest, rows)
            num_known = int(newest.exact)  # the first token of the plan needs no verification
            if newest.exact:
                self._choose(plan[0], token_k[0], newest.logits_XV[rows[0]])
                self._unwritten.append(plan[0])
            drafts = dict(zip(plan[num_known:], token_k[num_known:], strict=True))
            after = [self._next(plan[num_known:], number, num_next) for number in range(len(drafts) + 1)]
            if self._left:
                seen = self._verify(drafts, after)
                num_accepted = self._accept(drafts, None if q_kV is None else q_kV[num_known:], seen)
            self._score()
            if not self._left:
                return
            row = len(drafts) + sum(map(len, after[:num_accepted]))
            newest = seen.part(row, after[num_accepted], exact=num_accepted == len(drafts))
            self._certainty |= zip(newest.places, newest.probability_X, strict=True)

    def _plan(self, newest: _Predictions, at_once: int) -> list[int]:
        """Return the rows of the places to fill next, the surest first."""
        rows = range(len(newest.places))
        if self._by_certainty:
            return sorted(rows, key=lambda row: -newest.probability_X[row])[:at_once]
        return list(rows[:at_once])

    def _propose(self, newest: _Predictions, rows: Sequence[int]) -> tuple[list[int], Tensor | None]:
        """Return a token for each row of a plan, and the distributions they are drawn from; None for greedy choice."""
        if self._sampling.greedy:
            return [newest.token_X[row] for row in rows], None
        q_kV = self._sampling.probabilities(newest.allowed_XV[rows]).double()
        return pick(q_kV, self._uniforms(len(rows))).tolist(), q_kV

    def _next(self, drafts: Sequence[int], num_accepted: int, num_next: int | None) -> list[int]:
        """Return the places to predict if so many drafts are accepted; the next draft's token is then replaced."""
        gone = set(drafts[: num_accepted + 1])
        left = [place for place in self._left if place not in gone]
        if self._by_certainty and num_next is not None:
            left.sort(key=lambda place: -self._certainty[place])
        return left[:num_next]

    def _verify(self, drafts: Mapping[int, int], after: Sequence[Sequence[int]]) -> _Predictions:
        """Write what is not written and the drafts; predict the drafts and what comes after each number of them."""
        predicted = [*drafts, *(place for places in after for place in places)]
        ranks = [*range(len(drafts)), *(number for number, places in enumerate(after) for _ in places)]
        seen = self._pass(drafts, predicted, [len(self._unwritten) + rank for rank in ranks])
        self._unwritten = []
        return seen

    def _accept(self, drafts: Mapping[int, int], q_kV: Tensor | None, seen: _Predictions) -> int:
        """Accept drafts up to the first that is rejected, whose token is replaced; return how many are accepted."""
        p_kV = None if q_kV is None else self._sampling.probabilities(seen.allowed_XV[: len(drafts)]).double()
        for number, (place, draft) in enumerate(drafts.items()):
            if p_kV is None or q_kV is None:
                token = seen.token_X[number]
            else:
                token = self._sampled(draft, p_kV[number], q_kV[number])
            self._choose(place, token, seen.logits_XV[number])
            if token != draft:
                self._text.session.erase(self._columns(list(drafts)[number:]))
                self._unwritten = [place]
                return number
        return len(drafts)

    def _sampled(self, draft: int, p_V: Tensor, q_V: Tensor) -> int:
        """Return a token drawn from p: the draft, which was drawn from q, with probability min(1, p / q)."""
        if float(self._uniforms(1)) * float(q_V[draft]) < float(p_V[draft]):
            return draft
        return int(pick((p_V - q_V).clamp(min=0)[None], self._uniforms(1)))

    def _choose(self, place: int, token: int, logits_V: Tensor) -> None:
        self.token_at[place] = token
        self._left.remove(place)
        self._unscored.append((place, logits_V))

    def _score(self) -> None:
        """Compute the log-probabilities of the tokens that were chosen since the last call."""
        places = [place for place, _ in self._unscored]
        tokens = torch.tensor([self.token_at[place] for place in places], device=self._device)
        score_X = log_probability(torch.stack([logits_V for _, logits_V in self._unscored]), tokens)
        check_finite(score_X, NEW_TOKENS)
        self.score_at |= zip(places, score_X.tolist(), strict=True)
        self._unscored = []

    def _pass(
        self, drafts: Mapping[int, int], predicted: Sequence[int], ranks: Sequence[int], exact: bool = False
    ) -> _Predictions:
        """Write what is not written and the drafts, tokens by place; return the predictions of `predicted`."""
        self.num_passes += 1
        written = {place: self.token_at[place] for place in self._unwritten} | dict(drafts)
        logits_XV = self._text.session.step(
            self._row(list(written.values())),
            self._columns(list(written)),
            self._row(range(len(written))),
            self._columns(predicted),
            self._row(ranks),
        )[0]
        allowed_XV = self._rules.allow(logits_XV)
        likeliest = at_least_float32(allowed_XV).max(dim=-1)
        probability_X = (likeliest.values - at_least_float32(allowed_XV).logsumexp(dim=-1)).exp()
        return _Predictions(
            predicted, logits_XV, allowed_XV, likeliest.indices.tolist(), probability_X.tolist(), exact
        )

    def _columns(self, places: Sequence[int]) -> Tensor:
        return self._row([self._text.column(place) for place in places])

    def _row(self, values: Sequence[int]) -> Tensor:
        return torch.tensor([list(values)], dtype=torch.int64, device=self._device)

    def _uniforms(self, count: int) -> Tensor:
        return torch.from_numpy(np.asarray(self._random.random(count))).to(self._device)
