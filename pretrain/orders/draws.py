"""Random numbers by key on the device: bit for bit the same on every device and for every grouping of lanes.

A number is a function of (seed, purpose, step, lane, counter). Everything is int64 arithmetic with wrap-around, and
nothing waits for the device.

Shapes: B lanes, X draws per lane.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from pretrain.randomness import key_seed

_DRAW_BITS = 31
"""The bits of a draw below a bound, so that its product with a bound of as many bits fits int64."""


def _signed(word: int) -> int:
    """Return the int64 with the bits of a 64-bit word."""
    return word - (1 << 64) if word >= 1 << 63 else word


# splitmix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators").
_STRIDE = _signed(0x9E3779B97F4A7C15)
_FIRST_FACTOR = _signed(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = _signed(0x94D049BB133111EB)


def _shifted_right(words: Tensor, num_bits: int) -> Tensor:
    """Return the words shifted right and filled with zeros; torch's shift fills with the sign."""
    return (words >> num_bits) & ((1 << (64 - num_bits)) - 1)


def splitmix64(seed: Tensor | int, index: Tensor) -> Tensor:
    """Return output number `index` (from 0) of splitmix64 with `seed`, for any shapes that broadcast."""
    words = (index + 1) * _STRIDE + seed
    words = (words ^ _shifted_right(words, 30)) * _FIRST_FACTOR
    words = (words ^ _shifted_right(words, 27)) * _SECOND_FACTOR
    return words ^ _shifted_right(words, 31)


def choice_bounds(weights: Sequence[float], device: torch.device) -> Tensor:
    """Return the bounds with which `LaneDraws.choice` chooses i with a probability proportional to weights[i]."""
    total = sum(weights)
    bounds = [round(partial / total * 2**_DRAW_BITS) for partial in accumulate(weights)]
    return torch.tensor(bounds[:-1], device=device, dtype=torch.int64)


@dataclass(frozen=True)
class LaneDraws:
    """The random numbers of some lanes at one step, 64 bits each, int64 [B, X] by purpose."""

    bits: dict[str, Tensor]
    device: torch.device

    def sort_keys(self, purpose: str) -> Tensor:
        """Return int64 [B, X] in [0, 2^62): sorting by them gives a random permutation."""
        return _shifted_right(self.bits[purpose], 2)

    def below(self, purpose: str, bound: Tensor | int) -> Tensor:
        """Return int64 [B, X], uniform in [0, bound); bounds up to 2^31, of any shape that broadcasts."""
        return (self._short(purpose) * bound) >> _DRAW_BITS

    def choice(self, purpose: str, bounds: Tensor) -> Tensor:
        """Return int64 [B, X] choices with the weights given to `choice_bounds`."""
        return torch.searchsorted(bounds, self._short(purpose), right=True)

    def _short(self, purpose: str) -> Tensor:
        return _shifted_right(self.bits[purpose], 64 - _DRAW_BITS)


class DrawTable:
    """Makes all random numbers of a step at once, given how many numbers per lane each purpose needs."""

    def __init__(self, num_draws: Mapping[str, int], device: torch.device) -> None:
        self._num_draws, self._device = dict(num_draws), device
        first = [_signed(key_seed(0, purpose)) for purpose in num_draws]
        counters = [torch.arange(num, device=device) for num in num_draws.values()]
        self._column_X = torch.cat(
            [number + counter for number, counter in zip(first, counters, strict=True)]
        )

    def draws(self, seed: int, step: int, lanes: range) -> LaneDraws:
        """Return numbers that depend on (seed, step, lane, purpose, counter), not on other purposes in the table."""
        step_seed = _signed(key_seed(seed, "order", step))
        lane_B = torch.arange(lanes.start, lanes.stop, device=self._device)
        bits_BX = splitmix64(splitmix64(step_seed, lane_B)[:, None], self._column_X)
        by_purpose = torch.split(bits_BX, list(self._num_draws.values()), dim=1)
        return LaneDraws(dict(zip(self._num_draws, by_purpose, strict=True)), self._device)
