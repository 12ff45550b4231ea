"""Filling of holes from left to right with several tokens a pass: drafts are verified by the pass that writes them.

A token is chosen from the model's logits and the random number of its place, as `generation.generate` chooses it. A
draft is accepted if it is that token. So drafts decide how many passes are needed and nothing else: what is written is
what one token at a time would write, and its distribution is the model's.

Shapes: B lanes, K drafts of a lane, X verified rows of all lanes, V vocabulary, T tokens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pretrain.inference.finite import check_finite
from pretrain.inference.generation import NEW_TOKENS, Generated, Rating, best_beginning, log_probability
from pretrain.inference.hole import Holes
from pretrain.inference.sampling import Sampling
from pretrain.inference.token_rules import TokenRules

_LONGEST_RUN_TOKENS = 3


class Drafter:
    """Proposes tokens that continue a text.

    A draft is the token that followed the newest run of up to three equal tokens (prompt lookup). It decides how fast a
    text is written, never what is written.
    """

    def __init__(self, prefix: Sequence[int], suffix: Sequence[int]) -> None:
        self._following: dict[tuple[int, ...], int] = {}
        for part in (suffix, prefix):
            for end in range(1, len(part)):
                self._learn(part[max(0, end - _LONGEST_RUN_TOKENS) : end], part[end])
        self._written = list(prefix[-_LONGEST_RUN_TOKENS:])

    def copy(self) -> "Drafter":
        """Return a drafter that knows the same and learns by itself."""
        other = Drafter((), ())
        other._following, other._written = dict(self._following), list(self._written)
        return other

    def add(self, token: int) -> None:
        """Notice that a token was written."""
        self._learn(self._written, token)
        self._written = [*self._written, token][-_LONGEST_RUN_TOKENS:]

    def drafts(self, most: int) -> list[int]:
        """Return up to `most` tokens to propose after the written ones."""
        text, found = list(self._written), list[int]()
        while len(found) < most:
            runs = (tuple(text[-length:]) for length in range(min(_LONGEST_RUN_TOKENS, len(text)), 0, -1))
            known = next((run for run in runs if run in self._following), None)
            if known is None:
                break
            found.append(self._following[known])
            text.append(found[-1])
        return found

    def _learn(self, before: Sequence[int], token: int) -> None:
        for run in range(1, len(before) + 1):
            self._following[tuple(before[-run:])] = token


@dataclass
class _Lane:
    number: int
    limit: int
    drafter: Drafter
    tokens: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    end_scores: list[float] = field(default_factory=list)
    """The log-probabilities of the end in place of each token, if texts may be cut."""
    drafts: list[int] = field(default_factory=list)
    """The drafts of the current pass, which end before place `end_of_drafts` of the hole."""
    end_of_drafts: int = 0
    num_passes: int = 0
    going: bool = True
    ended: bool = False
    forced: bool = False


class SpeculativeFilling:
    """The lanes of a text with holes, which are filled until each ends or has `limits[lane]` tokens.

    `uniform_BT`, `must_end` and `rating` as in `generation.Writing`. `at_once` is the most tokens of a lane in a pass.
    """

    def __init__(
        self,
        text: Holes,
        drafters: Sequence[Drafter],
        limits: Sequence[int],
        sampling: Sampling,
        rules: TokenRules,
        uniform_BT: Tensor | None,
        *,
        must_end: bool,
        at_once: int,
        rating: Rating | None = None,
    ) -> None:
        self._text, self._sampling, self._rules, self._uniform_BT = text, sampling, rules, uniform_BT
        self._must_end, self._at_once, self._rating = must_end, at_once, rating
        self._lanes = [_Lane(number, *one) for number, one in enumerate(zip(limits, drafters, strict=True))]
        self._kept = self._lanes
        self._first_column = text.column

    @torch.inference_mode()
    def fill(self) -> list[Generated]:
        """Fill all lanes."""
        self._accept(self._text.first())
        while going := [place for place, lane in enumerate(self._kept) if lane.going]:
            if 2 * len(going) <= len(self._kept):  # not after each lane: it copies the remaining ones
                self._text.retain(self._row(going))
                self._kept = [self._kept[place] for place in going]
            self._draft()
            self._accept(self._pass())
        return [self._generated(lane) for lane in self._lanes]

    def _generated(self, lane: _Lane) -> Generated:
        assert lane.num_passes <= len(lane.tokens) + lane.ended, "each pass writes a token"
        found = Generated(
            tuple(lane.tokens), math.fsum(lane.scores), lane.ended, stopped=False, forced=lane.forced
        )
        if self._rating is None:
            return found
        return best_beginning(found, lane.scores, lane.end_scores, self._rating)

    def _draft(self) -> None:
        """Choose every lane's drafts."""
        for lane in self._kept:
            lane.drafts = lane.drafter.drafts(min(self._at_once - 1, self._most_drafts(lane)))
            lane.end_of_drafts = len(lane.tokens) + len(lane.drafts)

    def _most_drafts(self, lane: _Lane) -> int:
        return lane.limit - len(lane.tokens) - (not self._must_end) if lane.going else 0

    def _pass(self) -> Tensor:
        """Write every lane's newest token and drafts; return the logits [X, V] of what follows each of them."""
        session, lanes = self._text.session, self._kept
        # A lane that ended without a token writes anything, which nothing reads.
        newest_B = [self._first_column + max(0, len(lane.tokens) - 1) for lane in lanes]
        tokens_B = [[*(lane.tokens[-1:] or [0]), *lane.drafts] for lane in lanes]
        width = 1 + max(len(lane.drafts) for lane in lanes)
        if width == 1 and len(set(newest_B)) == 1:
            return session.write_and_predict(self._row([tokens[0] for tokens in tokens_B]), newest_B[0])
        # A lane with fewer drafts repeats its first row.
        ranks_B = [[*range(1 + len(lane.drafts))] for lane in lanes]
        rank_BT = self._row([[*ranks, *[0] * (width - len(ranks))] for ranks in ranks_B])
        token_BT = self._row([[*tokens, *tokens[:1] * (width - len(tokens))] for tokens in tokens_B])
        column_BT = self._row(newest_B)[:, None] + rank_BT
        logits_BTV = session.step(token_BT, column_BT, rank_BT, column_BT + 1, rank_BT + 1)
        verified_X = [lane * width + rank for lane, ranks in enumerate(ranks_B) for rank in range(len(ranks))]
        return logits_BTV.flatten(0, 1)[self._row(verified_X)]

    def _accept(self, logits_XV: Tensor) -> None:
        """Choose the tokens after each lane's newest and its drafts, up to the first that is not as drafted."""
        lanes = self._kept
        place_X = [(lane, number) for lane in lanes for number in range(1 + len(lane.drafts))]
        written_X = [[*lane.tokens, *lane.drafts[:number]] for lane, number in place_X]
        allowed_XV = self._rules.allow(logits_XV, written_X)
        uniform_X = None
        if self._uniform_BT is not None:
            most = self._uniform_BT.shape[1] - 1
            steps = [min(len(written), most) for written in written_X]
            uniform_X = self._uniform_BT[self._row([lane.number for lane, _ in place_X]), self._row(steps)]
        token_X = self._sampling.choose(allowed_XV, uniform_X)
        is_forced = [False] * len(place_X)
        if self._must_end:
            assert self._rules.end is not None
            at_limit = [
                len(written) == lane.limit for (lane, _), written in zip(place_X, written_X, strict=True)
            ]
            end_X = self._row(at_limit)
            is_forced = (end_X & (token_X != self._rules.end)).tolist()
            token_X = token_X.masked_fill(end_X, self._rules.end)
        score_X = log_probability(logits_XV, token_X).double()
        chosen = iter(
            zip(token_X.tolist(), score_X.tolist(), is_forced, self._end_scores(logits_XV), strict=True)
        )
        for lane in lanes:
            self._extend(lane, [next(chosen) for _ in range(1 + len(lane.drafts))])
        check_finite(score_X, NEW_TOKENS)
        self._erase_rejected()

    def _end_scores(self, logits_XV: Tensor) -> list[float]:
        if self._rating is None:
            return [0.0] * len(logits_XV)
        assert self._rules.end is not None
        end_X = torch.full((len(logits_XV),), self._rules.end, device=logits_XV.device)
        return log_probability(logits_XV, end_X).double().tolist()

    def _extend(self, lane: _Lane, chosen: Sequence[tuple[int, float, bool, float]]) -> None:
        if not lane.going:
            return
        lane.num_passes += 1
        for draft, (token, score, forced, end_score) in zip([*lane.drafts, None], chosen, strict=True):
            lane.scores.append(score)
            lane.end_scores.append(end_score)
            lane.ended, lane.forced = token == self._rules.end, forced
            if not lane.ended:
                lane.tokens.append(token)
                lane.drafter.add(token)
            lane.going = not lane.ended and (self._must_end or len(lane.tokens) < lane.limit)
            if not lane.going or token != draft:
                return

    def _erase_rejected(self) -> None:
        """Erase what was written in and after the place of each lane's newest token, which is not written yet."""
        session = self._text.session
        rejected_B = [
            range(self._first_column + len(lane.tokens) - 1, self._first_column + lane.end_of_drafts)
            if lane.going
            else range(0)
            for lane in self._kept
        ]
        most = max(map(len, rejected_B))
        if most:
            nowhere = [session.max_columns] * most
            session.erase(self._row([[*columns, *nowhere][:most] for columns in rejected_B]))

    def _row(self, values: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(values, device=self._text.session.model.device)
