"""Token after token, each chosen from the model's scores.

Shapes: B lanes, T tokens, V vocabulary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pretrain.inference.sampling import Sampling
from pretrain.inference.vocabulary import TokenRules
from pretrain.inference.written import Written
from pretrain.model.fused.cross_entropy import cross_entropy_fusable, fused_token_nats
from pretrain.model.precision import at_least_float32

Watch = Callable[[int, int], bool]
"""Told (lane, token) of every new token but the one that ends a text; True ends the lane."""


@dataclass(frozen=True)
class Generated:
    """New tokens without the one that ends a text; `log_likelihood` (nats, at temperature 1) counts it too.

    `ended` tells whether the text ended, `stopped` whether `watch` ended it; neither means it was cut.
    """

    tokens: tuple[int, ...]
    log_likelihood: float
    ended: bool
    stopped: bool = False

    @property
    def num_chosen(self) -> int:
        """Tokens that `log_likelihood` is of."""
        return len(self.tokens) + self.ended


@dataclass
class _Lane:
    limit: int
    """Tokens at most."""
    must_end: bool
    """Whether the end is written after `limit` tokens, wanted or not."""
    going: bool = True
    num_chosen: int = 0
    ended: bool = False
    stopped: bool = False


@torch.inference_mode()
def generate(
    text: Written,
    limits: Sequence[int],
    sampling: Sampling,
    rules: TokenRules,
    uniform_BT: Tensor | None = None,
    *,
    must_end: bool = False,
    watch: Watch | None = None,
) -> list[Generated]:
    """Write every lane until it ends or has `limits[lane]` tokens.

    `uniform_BT` in [0, 1) decides where tokens are drawn. With `must_end` a lane that has reached its limit is ended
    by `rules.end`, whose likelihood counts.
    """
    lanes = [_Lane(limit, must_end) for limit in limits]
    chosen: list[Tensor] = []
    scores: list[Tensor] = []
    logits_BV = text.first()
    for step in range(max(limits) + must_end):
        allowed_BV = rules.allow(logits_BV)
        token_B = sampling.choose(allowed_BV, None if uniform_BT is None else uniform_BT[:, step])
        if must_end and step in limits:
            at_limit_B = torch.tensor([step == limit for limit in limits], device=token_B.device)
            token_B = token_B.masked_fill(at_limit_B, -1 if rules.end is None else rules.end)
        chosen.append(token_B)
        scores.append(log_probability(logits_BV, token_B))
        if _judge(lanes, token_B, step, rules, watch):
            break
        logits_BV = text.following(token_B)
    tokens_BT, score_BT = torch.stack(chosen, dim=1).tolist(), torch.stack(scores, dim=1).double()
    return [
        Generated(
            tuple(tokens_BT[number][: lane.num_chosen - lane.ended]),
            float(score_BT[number, : lane.num_chosen].sum()),
            lane.ended,
            lane.stopped,
        )
        for number, lane in enumerate(lanes)
    ]


def _judge(lanes: list[_Lane], token_B: Tensor, step: int, rules: TokenRules, watch: Watch | None) -> bool:
    """Note what the newest tokens mean for their lanes; True when no lane goes on."""
    if rules.end is None and watch is None:
        for lane in lanes:
            lane.num_chosen = min(step + 1, lane.limit)
        return all(step + 1 >= lane.limit for lane in lanes)
    for number, (lane, token) in enumerate(zip(lanes, token_B.tolist(), strict=True)):
        if not lane.going:
            continue
        lane.num_chosen = step + 1
        lane.ended = token == rules.end
        lane.stopped = not lane.ended and watch is not None and watch(number, token)
        is_full = step + 1 >= lane.limit and not lane.must_end
        lane.going = not (lane.ended or lane.stopped or is_full)
    return not any(lane.going for lane in lanes)


def log_probability(logits_XV: Tensor, token_X: Tensor) -> Tensor:
    """Natural logarithm [X] of the probability the scores give to tokens, float32 at least."""
    if cross_entropy_fusable(logits_XV):
        return -fused_token_nats(logits_XV, token_X)
    logits_XV = at_least_float32(logits_XV)
    return logits_XV.gather(-1, token_X[:, None])[:, 0] - logits_XV.logsumexp(dim=-1)
