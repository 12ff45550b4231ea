"""Sampling of tokens from logits: greedy, temperature, top-k, top-p.

Shapes: X rows, V vocabulary, T steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from cluster.errors import UserError
from cluster.storage import sha256_bytes
from pretrain.model.precision import at_least_float32
from pretrain.randomness import key_seed, keyed_generator


@dataclass(frozen=True)
class Sampling:
    """Options of sampling. `temperature` 0 takes the most likely token; otherwise tokens are sampled from the
    distribution at that temperature, truncated to the `top_k` most likely tokens and to the fewest that hold `top_p`
    of it, and renormalised.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise UserError(f"temperature must be 0 (most likely token) or above, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"top-k must be at least 1, got {self.top_k}")
        if self.top_p is not None and not 0.0 < self.top_p <= 1.0:
            raise UserError(f"top-p must be above 0 and at most 1, got {self.top_p}")

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken and nothing is sampled."""
        return self.temperature == 0.0

    def probabilities(self, logits_XV: Tensor) -> Tensor:
        """Return the distribution [X, V] of sampling; greedy is all on the most likely token (the first of ties)."""
        logits_XV = at_least_float32(logits_XV)
        if self.greedy:
            return functional.one_hot(logits_XV.argmax(dim=-1), logits_XV.shape[-1]).to(logits_XV.dtype)
        # Subtracting the maximum and clamping the temperature prevent inf / inf and 0 / 0 at extreme temperatures.
        below_best_XV = logits_XV - logits_XV.amax(dim=-1, keepdim=True)
        numbers = torch.finfo(logits_XV.dtype)
        scaled_XV = below_best_XV / min(max(self.temperature, numbers.tiny), numbers.max)
        if self.top_k is not None and self.top_k < logits_XV.shape[-1]:
            chosen_Xk = scaled_XV.topk(self.top_k, dim=-1).indices
            kept_XV = torch.zeros_like(scaled_XV, dtype=torch.bool).scatter_(-1, chosen_Xk, True)
            scaled_XV = scaled_XV.masked_fill(~kept_XV, -torch.inf)
        probability_XV = functional.softmax(scaled_XV, dim=-1)
        return probability_XV if self.top_p is None else _nucleus(probability_XV, self.top_p)

    def choose(self, logits_XV: Tensor, uniform_X: Tensor | None) -> Tensor:
        """Choose a token per row, int64 [X]; `uniform_X` in [0, 1) decides what is sampled."""
        if self.greedy:
            return logits_XV.max(dim=-1).indices  # on CPUs twice as fast as argmax
        assert uniform_X is not None
        return pick(self.probabilities(logits_XV), uniform_X)


GREEDY = Sampling()


def pick(probability_XV: Tensor, uniform_X: Tensor) -> Tensor:
    """Return the token at which the cumulative probability passes `uniform_X`; never one of probability 0."""
    cumulated_XV = probability_XV.double().cumsum(dim=-1)
    wanted_X1 = (uniform_X.double() * cumulated_XV[:, -1])[:, None]
    token_X = torch.searchsorted(cumulated_XV, wanted_X1, right=True)[:, 0]
    last_possible_X = probability_XV.shape[-1] - 1 - (probability_XV > 0).flip(-1).int().argmax(dim=-1)
    return torch.minimum(token_X, last_possible_X)


def uniforms(seed: int, context: NDArray[np.int64], sample: int, num_steps: int) -> Tensor:
    """Return float64 [T] in [0, 1) for one sample of one context; they do not depend on the rest of the batch."""
    content = int(sha256_bytes(context.tobytes())[:14], 16)
    generator = keyed_generator(key_seed(seed, "context", content), "sample", sample)
    return torch.from_numpy(generator.random(num_steps))


def uniforms_of_lanes(
    sampling: Sampling,
    contexts: Sequence[NDArray[np.int64]],
    samples: Sequence[int],
    num_steps: int,
    device: torch.device,
) -> Tensor | None:
    """Return [B, T] for the numbered samples of every context in a row; None for greedy sampling."""
    if sampling.greedy:
        return None
    rows = [uniforms(sampling.seed, context, sample, num_steps) for context in contexts for sample in samples]
    return torch.stack(rows).to(device)


def _nucleus(probability_XV: Tensor, top_p: float) -> Tensor:
    sorted_XV, token_XV = probability_XV.sort(dim=-1, descending=True, stable=True)
    # A token is kept while the more likely ones hold less than top_p, so at least one is kept.
    before_XV = sorted_XV.cumsum(dim=-1) - sorted_XV
    kept_XV = torch.zeros_like(probability_XV).scatter_(-1, token_XV, sorted_XV * (before_XV < top_p))
    return kept_XV / kept_XV.sum(dim=-1, keepdim=True)
