"""Linear recurrences over a sequence as parallel scans.

Shapes: B lanes, T places of the sequence, N channels of the state, D width of a state that a matrix acts on.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional


def linear_scan(decay_BTN: Tensor, input_BTN: Tensor) -> Tensor:
    """Return state_t = decay_t * state_{t-1} + input_t for all t, from a state of zeros; real or complex [B, T, N].

    Steps (a, u) compose associatively: first (a, u), then (b, v) is (b a, b u + v). So neighbours are joined, the
    sequence of half the length is solved, and the places between are filled in (Blelloch 1990, "Prefix sums and their
    applications", section 1.4): work is proportional to T, depth to log T. Gradients are a scan from the other end;
    there are no second derivatives. A place with decay 1 and input 0 does not change the state. Raises ValueError if
    the shapes differ.
    """
    if decay_BTN.shape != input_BTN.shape:
        raise ValueError(f"decay has shape {tuple(decay_BTN.shape)}, input {tuple(input_BTN.shape)}")
    states_BTN: Tensor = _LinearScan.apply(decay_BTN, input_BTN)  # type: ignore[no-untyped-call]
    return states_BTN


def matrix_scan(matrix_DD: Tensor, input_BTD: Tensor) -> Tensor:
    """Return state_t = A state_{t-1} + input_t for all t [B, T, D], from a state of zeros, with the same A at all t.

    As in `linear_scan`, the inputs u and v of two neighbours are joined to A u + v, and the sequence of half the length
    has the matrix A A. So about 2T rows are multiplied by a matrix in total, and log T matrices are squared.
    """
    length = input_BTD.shape[1]
    if length <= 1:
        return input_BTD
    half = length // 2
    first_BHD, second_BHD = input_BTD[:, 0 : 2 * half : 2], input_BTD[:, 1 : 2 * half : 2]
    odd_BHD = matrix_scan(matrix_DD @ matrix_DD, functional.linear(first_BHD, matrix_DD) + second_BHD)
    later = input_BTD[:, 2::2] + functional.linear(odd_BHD[:, : (length - 1) // 2], matrix_DD)
    even = torch.cat([input_BTD[:, :1], later], dim=1)
    pairs_BTD = torch.stack([even[:, :half], odd_BHD], dim=2).flatten(1, 2)
    return torch.cat([pairs_BTD, even[:, half:]], dim=1)


class _LinearScan(torch.autograd.Function):
    """The scan, with the gradient g_t = given_t + conj(decay_{t+1}) g_{t+1} of state_t, later states included."""

    @staticmethod
    def forward(ctx: Any, decay_BTN: Tensor, input_BTN: Tensor) -> Tensor:
        states_BTN = _scan(decay_BTN, input_BTN)
        ctx.save_for_backward(decay_BTN, states_BTN)
        return states_BTN

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, given_BTN: Tensor) -> tuple[Tensor, Tensor]:
        decay_BTN, states_BTN = ctx.saved_tensors
        # The last place has no successor: its factor is multiplied by a state of zeros, whatever it is.
        next_decay_BTN = decay_BTN.roll(-1, dims=1)
        gradient_BTN = _scan(next_decay_BTN.conj().flip(1), given_BTN.flip(1)).flip(1)
        before_BTN = torch.cat([torch.zeros_like(states_BTN[:, :1]), states_BTN[:, :-1]], dim=1)
        return gradient_BTN * before_BTN.conj(), gradient_BTN


def _scan(decay_BTN: Tensor, input_BTN: Tensor) -> Tensor:
    length = input_BTN.shape[1]
    if length <= 1:
        return input_BTN.clone()
    half = length // 2
    even, odd = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    joined_decay = decay_BTN[:, odd] * decay_BTN[:, even]
    joined_input = decay_BTN[:, odd] * input_BTN[:, even] + input_BTN[:, odd]
    states_BTN = torch.empty_like(input_BTN)
    states_BTN[:, odd] = _scan(joined_decay, joined_input)
    states_BTN[:, :1] = input_BTN[:, :1]
    states_BTN[:, 2::2] = input_BTN[:, 2::2] + decay_BTN[:, 2::2] * states_BTN[:, 1:-1:2]
    return states_BTN
