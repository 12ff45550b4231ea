"""Generation: token after token, each chosen from the model's logits.

Shapes: B lanes, T tokens, V vocabulary.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from pretrain.inference.finite import check_finite
from pretrain.inference.sampling import Sampling
from pretrain.inference.token_rules import TokenRules
from pretrain.model.fused.cross_entropy import cross_entropy_fusable, fused_token_nats
from pretrain.model.precision import at_least_float32

NEW_TOKENS = "the scores of new tokens"
Rating = Callable[[float, int], float]
"""The score by which texts are compared, of a log-likelihood and the number of tokens that it is of."""
OnToken = Callable[[int, int], bool]
"""Called with (lane, token) for every new token but the one that ends a text; True ends the lane."""


class IncrementalDecoder(Protocol):
    """Decoding of some lanes token by token: logits of the next token, given the tokens written so far."""

    def first(self) -> Tensor:
        """Return the logits [B, V] of the first new token."""

    def following(self, token_B: Tensor) -> Tensor:
        """Write `token_B` and return the logits [B, V] of the next token."""

    def reorder(self, lane_B: Tensor) -> None:
        """Let lane i continue the tokens of lane `lane_B[i]`, which has the same context."""

    def retain(self, lane_X: Tensor) -> None:
        """Keep only these lanes, which become lanes 0, 1, ..."""


@dataclass(frozen=True)
class Generated:
    """The new tokens without the one that ends a text; `log_likelihood` (nats, at temperature 1) includes it.

    `ended`: the text ended (`forced`: at its limit, where the model would have continued); `stopped`: `watch` ended it.
    If neither is true, the text was cut.
    """

    tokens: tuple[int, ...]
    log_likelihood: float
    ended: bool
    stopped: bool = False
    forced: bool = False

    @property
    def num_chosen(self) -> int:
        """The number of tokens in `log_likelihood`."""
        return len(self.tokens) + self.ended


@dataclass
class _Lane:
    number: int
    limit: int
    """The most tokens."""
    must_end: bool
    """Whether the end is forced after `limit` tokens."""
    tokens: list[int] = field(default_factory=list)
    """The tokens so far, if they are needed (see `_follow`)."""
    going: bool = True
    num_chosen: int = 0
    ended: bool = False
    stopped: bool = False
    forced: bool = False


@dataclass(frozen=True)
class _Chosen:
    """The tokens of one step and their log-probabilities, in the lanes that were still active."""

    lanes: Sequence[_Lane]
    token_B: Tensor
    score_B: Tensor
    end_score_B: Tensor | None
    """The log-probabilities of the end in the same places, if texts may be cut (see `Writing`)."""


class Writing:
    """The tokens that are chosen in some lanes, step by step, until each lane ends or has `limits[lane]` tokens.

    `uniform_BT` in [0, 1) decides what is sampled. With `must_end`, a lane at its limit is ended by `rules.end`, whose
    likelihood counts. Lanes that ended stay until `keep` leaves them out.

    With `rating`, a text that ended may be cut: of its beginnings, each of one token or more and with the end after
    it, and the text itself the one counts that is rated highest. The end is often likely where it is not the likeliest
    token.
    """

    def __init__(
        self,
        limits: Sequence[int],
        sampling: Sampling,
        rules: TokenRules,
        uniform_BT: Tensor | None = None,
        *,
        must_end: bool = False,
        watch: OnToken | None = None,
        rating: Rating | None = None,
    ) -> None:
        self._is_followed = rules.end is not None or rules.max_repeats is not None or watch is not None
        self._lanes = [_Lane(number, limit, must_end) for number, limit in enumerate(limits)]
        self._kept = self._lanes
        self._sampling, self._rules, self._uniform_BT = sampling, rules, uniform_BT
        self._limits, self._must_end, self._watch, self._rating = set(limits), must_end, watch, rating
        self._chosen: list[_Chosen] = []

    @property
    def lanes(self) -> list[int]:
        """The numbers of the lanes whose tokens `choose` returns."""
        return [lane.number for lane in self._kept]

    @property
    def going(self) -> list[int]:
        """The places in `lanes` of those that have not ended."""
        return [place for place, lane in enumerate(self._kept) if lane.going]

    @property
    def end(self) -> int | None:
        """The token that ends a text."""
        return self._rules.end

    @torch.inference_mode()
    def choose(self, logits_BV: Tensor) -> Tensor:
        """Choose the next token of every lane, int64 [B].

        Raises UserError for logits that are not finite, before `watch` is called.
        """
        step = len(self._chosen)
        allowed_BV = self._rules.allow(logits_BV, [lane.tokens for lane in self._kept])
        uniform_B = None if self._uniform_BT is None else self._uniform_BT[:, step]
        token_B = self._sampling.choose(allowed_BV, uniform_B)
        if self._must_end and step in self._limits:
            token_B = _ended_at_limit(self._kept, token_B, step, self._rules)
        self._chosen.append(
            _Chosen(self._kept, token_B, log_probability(logits_BV, token_B), self._end_scores(logits_BV))
        )
        if self._is_followed:
            check_finite(self._chosen[-1].score_B, NEW_TOKENS)
            _follow(self._kept, token_B, step, self._rules, self._watch)
        else:
            _count(self._kept, step)
        return token_B

    def _end_scores(self, logits_BV: Tensor) -> Tensor | None:
        if self._rating is None:
            return None
        assert self._rules.end is not None
        end_B = torch.full((len(logits_BV),), self._rules.end, device=logits_BV.device)
        return log_probability(logits_BV, end_B)

    def keep(self, places: Sequence[int]) -> None:
        """Keep only the lanes at these places of `lanes`."""
        self._kept = [self._kept[place] for place in places]
        if self._uniform_BT is not None:
            self._uniform_BT = self._uniform_BT[list(places)]

    def generated(self) -> list[Generated]:
        """Return the tokens of every lane so far."""
        return _collected(self._lanes, self._chosen, self._rating)


@torch.inference_mode()
def generate(
    text: IncrementalDecoder,
    limits: Sequence[int],
    sampling: Sampling,
    rules: TokenRules,
    uniform_BT: Tensor | None = None,
    *,
    must_end: bool = False,
    watch: OnToken | None = None,
    rating: Rating | None = None,
) -> list[Generated]:
    """Generate in every lane until it ends or has `limits[lane]` tokens: see `Writing`."""
    writing = Writing(limits, sampling, rules, uniform_BT, must_end=must_end, watch=watch, rating=rating)
    logits_BV = text.first()
    while True:
        token_B = writing.choose(logits_BV)
        going = writing.going
        if not going:
            return writing.generated()
        if 2 * len(going) <= len(writing.lanes):  # not after each lane: it copies the remaining ones
            kept_X = torch.tensor(going, device=token_B.device)
            text.retain(kept_X)
            token_B = token_B[kept_X]
            writing.keep(going)
        logits_BV = text.following(token_B)


def _collected(lanes: Sequence[_Lane], chosen: Sequence[_Chosen], rating: Rating | None) -> list[Generated]:
    check_finite(torch.cat([one.score_B for one in chosen]), NEW_TOKENS)
    tokens: list[list[int]] = [[] for _ in lanes]
    scores: list[list[float]] = [[] for _ in lanes]
    end_scores: list[list[float]] = [[] for _ in lanes]
    for one in chosen:
        for lane, token, score in zip(
            one.lanes, one.token_B.tolist(), one.score_B.double().tolist(), strict=True
        ):
            tokens[lane.number].append(token)
            scores[lane.number].append(score)
        if one.end_score_B is not None:
            for lane, score in zip(one.lanes, one.end_score_B.double().tolist(), strict=True):
                end_scores[lane.number].append(score)
    found = [
        Generated(
            tuple(tokens[lane.number][: lane.num_chosen - lane.ended]),
            math.fsum(scores[lane.number][: lane.num_chosen]),
            lane.ended,
            lane.stopped,
            lane.forced,
        )
        for lane in lanes
    ]
    if rating is None:
        return found
    return [
        best_beginning(one, scores[number], end_scores[number], rating) for number, one in enumerate(found)
    ]


def best_beginning(
    text: Generated, scores: Sequence[float], end_scores: Sequence[float], rating: Rating
) -> Generated:
    """Return the text that ended, or a beginning of it with an end after it, whichever is rated highest."""
    if not text.ended:
        return text
    best, best_rating = text, rating(text.log_likelihood, text.num_chosen)
    for length in range(1, len(text.tokens)):
        log_likelihood = math.fsum([*scores[:length], end_scores[length]])
        if (rated := rating(log_likelihood, length + 1)) > best_rating:
            best, best_rating = Generated(text.tokens[:length], log_likelihood, ended=True), rated
    return best


def _ended_at_limit(lanes: Sequence[_Lane], token_B: Tensor, step: int, rules: TokenRules) -> Tensor:
    """Return the tokens with the end in lanes at their limit; lanes that chose another token become `forced`."""
    assert rules.end is not None
    at_limit_B = torch.tensor([step == lane.limit for lane in lanes], device=token_B.device)
    forced_B = at_limit_B & (token_B != rules.end)
    for lane, forced in zip(lanes, forced_B.tolist(), strict=True):
        lane.forced |= lane.going and forced
    return token_B.masked_fill(at_limit_B, rules.end)


def _count(lanes: Sequence[_Lane], step: int) -> None:
    """Count one more token, when only limits end a lane."""
    for lane in lanes:
        lane.num_chosen = min(step + 1, lane.limit)
        lane.going = step + 1 < lane.limit


def _follow(
    lanes: Sequence[_Lane], token_B: Tensor, step: int, rules: TokenRules, watch: OnToken | None
) -> None:
    """Update the lanes by their newest tokens."""
    for lane, token in zip(lanes, token_B.tolist(), strict=True):
        if not lane.going:
            continue
        lane.num_chosen = step + 1
        lane.tokens.append(token)
        lane.ended = token == rules.end
        lane.stopped = not lane.ended and watch is not None and watch(lane.number, token)
        is_full = step + 1 >= lane.limit and not lane.must_end
        lane.going = not (lane.ended or lane.stopped or is_full)


def log_probability(logits_XV: Tensor, token_X: Tensor) -> Tensor:
    """Return the natural log-probabilities [X] of tokens, computed in float32 at least."""
    if cross_entropy_fusable(logits_XV):
        return -fused_token_nats(logits_XV, token_X)
    logits_XV = at_least_float32(logits_XV)
    return logits_XV.gather(-1, token_X[:, None])[:, 0] - logits_XV.logsumexp(dim=-1)
