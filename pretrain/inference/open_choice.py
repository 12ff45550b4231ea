"""Which fillings of a hole of unknown length can still become the answer, while they are written.

A log-likelihood only falls, and at most the length of its place divides it. So a filling that is being written has a
ceiling of its rating; once that is below the rating of a filling that is there, it need not be written any further.
What all fillings that are left begin with is final.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pretrain.inference.infilling import rated

_ROUNDING = 1e-6
"""How much ratings may be wrong."""


@dataclass
class _Lane:
    limit: int
    tokens: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    state: Literal["going", "ended", "stopped", "dropped"] = "going"
    rating: float = -math.inf
    """Of the best filling that is there: the lane's text once it is over, or a beginning of it with an end."""
    num_tokens: int = 0
    log_likelihood: float = -math.inf

    def take(self, rating: float, num_tokens: int, log_likelihood: float) -> None:
        self.rating, self.num_tokens, self.log_likelihood = rating, num_tokens, log_likelihood


@dataclass(frozen=True)
class Chosen:
    """The filling that is best: the first tokens of a lane. `is_cut`: the lane itself went on after them."""

    lane: int
    num_tokens: int
    log_likelihood: float
    is_cut: bool


class OpenChoice:
    """The choice among lanes with `limits` of tokens before the end; those of a sample are every `num_samples`-th.

    With `may_cut`, beginnings of one token or more are fillings too, if the lane ends. `always_ends`: every lane that
    is not dropped will end.
    """

    def __init__(self, limits: Sequence[int], num_samples: int, *, may_cut: bool, always_ends: bool) -> None:
        self._lanes = [_Lane(limit) for limit in limits]
        self._num_samples = num_samples
        self._may_cut, self._always_ends = may_cut, always_ends

    def add(self, lane: int, token: int, score: float, end_score: float, over: str | None) -> None:
        """Take a lane's next token, its log-probability and that of the end; `over`: "ended", "stopped" or None."""
        one = self._lanes[lane]
        if over is None:
            if self._may_cut and one.tokens:
                self._offer(one, [*one.scores, end_score])
            one.tokens.append(token)
            one.scores.append(score)
            return
        one.scores.append(score)
        log_likelihood = math.fsum(one.scores)
        rating = rated(log_likelihood, len(one.scores))
        if over == "stopped":
            one.tokens.append(token)
            one.state = "stopped"
        else:
            one.state = "ended"
        if over == "stopped" or rating >= one.rating:
            one.take(rating, len(one.tokens), log_likelihood)

    def _offer(self, one: _Lane, scores: Sequence[float]) -> None:
        log_likelihood = math.fsum(scores)
        if (rating := rated(log_likelihood, len(scores))) > one.rating:
            one.take(rating, len(one.tokens), log_likelihood)

    def drop(self) -> set[int]:
        """Return the lanes that need not be written any further because they cannot become the answer."""
        dropped = set()
        for sample in range(self._num_samples):
            least = self._best_rating(sample) - _ROUNDING
            for lane in self._of_sample(sample):
                one = self._lanes[lane]
                may_be_cut = not self._always_ends and one.rating >= least
                if one.state == "going" and self._ceiling(one) < least and not may_be_cut:
                    one.state = "dropped"
                    dropped.add(lane)
        return dropped

    def chosen(self, sample: int) -> Chosen | None:
        """Return the best filling that is there; None if that is not certain."""
        found = None
        for lane in self._of_sample(sample):
            one = self._lanes[lane]
            if self._is_there(one) and (found is None or one.rating > self._lanes[found].rating):
                found = lane
        if found is None:
            return None
        one = self._lanes[found]
        is_cut = one.state in ("going", "dropped") or one.num_tokens < len(one.tokens)
        return Chosen(found, one.num_tokens, one.log_likelihood, is_cut)

    def tokens(self, lane: int, num_tokens: int) -> Sequence[int]:
        """Return the first tokens of a lane."""
        return self._lanes[lane].tokens[:num_tokens]

    def common(self, sample: int, text_of: Callable[[int, int | None], bytes]) -> bytes:
        """Return what all fillings begin with that can still become the answer.

        `text_of` gives the text of a lane's first tokens, or (None) as much of the lane's text as cannot change.
        """
        least = self._best_rating(sample) - _ROUNDING
        texts = []
        for lane in self._of_sample(sample):
            one = self._lanes[lane]
            if one.rating >= least and one.rating > -math.inf:
                is_whole = one.num_tokens == len(one.tokens) and one.state in ("ended", "stopped")
                texts.append(text_of(lane, None if is_whole else one.num_tokens))
            if one.state == "going" and (self._ceiling(one) >= least or not self._always_ends):
                texts.append(text_of(lane, None))
        return _common_beginning(texts)

    def _of_sample(self, sample: int) -> range:
        return range(sample, len(self._lanes), self._num_samples)

    def _best_rating(self, sample: int) -> float:
        own = [self._lanes[lane] for lane in self._of_sample(sample)]
        return max((one.rating for one in own if self._is_there(one)), default=-math.inf)

    def _is_there(self, one: _Lane) -> bool:
        if one.state in ("ended", "stopped"):
            return True
        return self._always_ends and one.rating > -math.inf

    def _ceiling(self, one: _Lane) -> float:
        return rated(math.fsum(one.scores), one.limit + 1)


def _common_beginning(texts: Sequence[bytes]) -> bytes:
    # What the first and the last one in sorted order share, all do.
    low, high = min(texts), max(texts)
    for place, (one, other) in enumerate(zip(low, high, strict=False)):
        if one != other:
            return low[:place]
    return low
