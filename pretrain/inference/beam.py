"""Beam search: the most likely texts that a beam of a given width finds.

Shapes: G texts, W beam, B = G * W lanes, X lanes of the unfinished texts, V vocabulary, C candidates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pretrain.inference.finite import check_finite
from pretrain.inference.generation import NEW_TOKENS, Generated, IncrementalDecoder
from pretrain.inference.token_rules import TokenRules


@dataclass
class _Beam:
    """The hypotheses of one text: `tokens` of the W active ones, and the finished ones."""

    width: int
    limit: int
    must_end: bool
    length_power: float
    ended_first: bool
    tokens: list[tuple[int, ...]]
    would_end: Sequence[bool] = ()
    """Which of the active hypotheses have the end as their most likely token, at the limit."""
    finished: list[Generated] = field(default_factory=list)
    surest_end: Generated | None = None
    """The hypothesis, of all active ones so far, whose end was most likely, ended there."""
    surest_log_probability: float = -math.inf
    done: bool = False

    def rating(self, hypothesis: Generated) -> float:
        """Return the score by which hypotheses are compared: nats per token if `length_power` is 1."""
        return float(hypothesis.log_likelihood / max(1, hypothesis.num_chosen) ** self.length_power)

    def best(self) -> list[Generated]:
        """Return the finished hypotheses, the best first."""
        finished = self.finished
        if self.ended_first and self.surest_end is not None and not any(one.ended for one in finished):
            finished = [*finished, self.surest_end]
        return sorted(
            finished, key=lambda one: (one.ended and self.ended_first, self.rating(one)), reverse=True
        )

    def note_ends(self, scores: Sequence[float], ends: Sequence[float]) -> None:
        """Keep the most likely end, given every hypothesis' score and the end's log-probability after it."""
        for tokens, score, end in zip(self.tokens, scores, ends, strict=True):
            if score > -math.inf and end > self.surest_log_probability:
                self.surest_end = Generated(tokens, score + end, ended=True)
                self.surest_log_probability = end

    def cannot_improve(self, best_score: float, num_tokens: int) -> bool:
        """Return whether no active hypothesis of `num_tokens` tokens can become one of the W best.

        With `ended_first`, return whether the best active one is not better than the best that ended.
        """
        if len(self.finished) < self.width:
            return False
        if self.width == 1:  # greedy
            return True
        if self.ended_first:
            return bool(self.rating(self.best()[0]) >= best_score / num_tokens**self.length_power)
        longest = self.limit + self.must_end
        return bool(self.rating(self.best()[self.width - 1]) >= best_score / longest**self.length_power)


@torch.inference_mode()
def beam_search(
    text: IncrementalDecoder,
    limits: Sequence[int],
    width: int,
    rules: TokenRules,
    *,
    must_end: bool = False,
    length_power: float = 1.0,
    ended_first: bool = False,
) -> list[list[Generated]]:
    """Search for each of G texts (`text` has `width` lanes of each in a row); return up to `width` results, best first.

    Results are rated by log-likelihood / num_tokens ** length_power. A text of `limits[g]` tokens is cut, or, with
    `must_end`, ended. With `ended_first`, ended hypotheses precede cut ones, because a hypothesis that repeats itself
    has a high likelihood per token and never ends; a text is done when `width` have ended and no active one is better;
    if no end was ever among the most likely tokens, the text ends where its end was most likely.
    """
    beams = [_Beam(width, limit, must_end, length_power, ended_first, [()] * width) for limit in limits]
    going = beams
    logits_BV = text.first()
    # All lanes of a text are equal at first: one of them is active.
    score_GW = torch.full((len(going), width), -torch.inf, dtype=torch.float64, device=logits_BV.device)
    score_GW[:, 0] = 0.0
    for step in range(max(limits) + must_end):
        log_BV = rules.allow(
            _log_probabilities(logits_BV), [tokens for beam in going for tokens in beam.tokens]
        )
        if must_end and step in limits:
            would_end = [token == rules.end for token in log_BV.argmax(dim=-1).tolist()]
            for number, beam in enumerate(going):
                beam.would_end = would_end[number * width : (number + 1) * width]
            log_BV = _only_end(log_BV, [step == beam.limit for beam in going for _ in range(width)], rules)
        if ended_first and rules.end is not None:
            end_GW = log_BV[:, rules.end].view(score_GW.shape)
            for beam, scores, ends in zip(going, score_GW.tolist(), end_GW.tolist(), strict=True):
                beam.note_ends(scores, ends)
        value_GC, lane_GC, token_GC = _candidates(log_BV, score_GW)
        chosen = [
            _choose(beam, step, rules, list(zip(*one, strict=True)))
            for beam, one in zip(
                going,
                zip(value_GC.tolist(), lane_GC.tolist(), token_GC.tolist(), strict=True),
                strict=True,
            )
        ]
        if all(beam.done for beam in going):
            break
        lane_B = [number * width + one[1] for number, row in enumerate(chosen) for one in row]
        text.reorder(torch.tensor(lane_B, device=score_GW.device))
        kept = [number for number, beam in enumerate(going) if not beam.done]
        if 2 * len(kept) <= len(going):  # not after each text: it copies the remaining lanes
            lane_X = [number * width + one for number in kept for one in range(width)]
            text.retain(torch.tensor(lane_X, device=score_GW.device))
            going, chosen = [going[number] for number in kept], [chosen[number] for number in kept]
        score_GW = torch.tensor(
            [[one[0] for one in row] for row in chosen], device=score_GW.device, dtype=score_GW.dtype
        )
        logits_BV = text.following(
            torch.tensor([one[2] for row in chosen for one in row], device=score_GW.device)
        )
    return [beam.best()[:width] for beam in beams]


def _log_probabilities(logits_BV: Tensor) -> Tensor:
    """Return float64 [B, V]. Raises UserError for logits that are not finite."""
    logits_BV = logits_BV.double()
    sum_B1 = logits_BV.logsumexp(dim=-1, keepdim=True)
    check_finite(sum_B1, NEW_TOKENS)
    return logits_BV - sum_B1


def _only_end(log_BV: Tensor, at_limit: list[bool], rules: TokenRules) -> Tensor:
    """Return the scores with all tokens but the end at minus infinity in lanes at their limit."""
    assert rules.end is not None
    other_V = torch.arange(log_BV.shape[-1], device=log_BV.device) != rules.end
    at_limit_B1 = torch.tensor(at_limit, device=log_BV.device)[:, None]
    return log_BV.masked_fill(at_limit_B1 & other_V, -torch.inf)


def _candidates(log_BV: Tensor, score_GW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best continuations of each text: score, lane within the text, token, [G, C] each."""
    num_texts, width = score_GW.shape
    vocab_size = log_BV.shape[-1]
    total_GX = (log_BV.view(num_texts, width, -1) + score_GW[:, :, None]).flatten(1)
    # Twice the width, so that W remain when W of them are ends.
    value_GC, index_GC = total_GX.topk(min(2 * width, total_GX.shape[1]), dim=-1)
    return value_GC, index_GC // vocab_size, index_GC % vocab_size


def _choose(
    beam: _Beam, step: int, rules: TokenRules, candidates: list[tuple[float, int, int]]
) -> list[tuple[float, int, int]]:
    """Finish hypotheses and return, for each of the W lanes, the (score, source lane, token) that continues in it."""
    active: list[tuple[float, int, int]] = []
    if beam.done:
        return _assign_lanes(active, beam.width)
    for rank, (score, lane, token) in enumerate(candidates):
        if score == -torch.inf or len(active) == beam.width:
            break
        tokens = beam.tokens[lane]
        if token == rules.end:
            if rank < beam.width:
                forced = step == beam.limit and not beam.would_end[lane]
                beam.finished.append(Generated(tokens, score, ended=True, forced=forced))
        else:
            active.append((score, lane, token))
    if step + 1 == beam.limit and not beam.must_end:
        beam.finished += [
            Generated((*beam.tokens[lane], token), score, ended=False) for score, lane, token in active
        ]
        active = []
    beam.done = not active or beam.cannot_improve(active[0][0], step + 1)
    chosen = _assign_lanes(active, beam.width)
    beam.tokens = [
        () if score == -torch.inf else (*beam.tokens[lane], token) for score, lane, token in chosen
    ]
    return chosen


def _assign_lanes(active: list[tuple[float, int, int]], width: int) -> list[tuple[float, int, int]]:
    """Assign hypotheses to lanes, which they keep if possible, to copy less. Empty lanes score minus infinity."""
    chosen = [(-torch.inf, lane, 0) for lane in range(width)]
    moving = []
    for one in active:
        if chosen[one[1]][0] == -torch.inf:
            chosen[one[1]] = one
        else:
            moving.append(one)
    for lane in range(width):
        if moving and chosen[lane][0] == -torch.inf:
            chosen[lane] = moving.pop(0)
    return chosen
