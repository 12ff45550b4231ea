"""ConbaLayer: a state-space scan with a selective gate, control and feedback weights (seed 002).

For the input x_t of place t, from state_0 = 0, with o for products per element:

    state_t            = A state_{t-1} + B x_t
    selective_output_t = swish(selective_fc(x_t)) o x_t
    adjusted_output_t  = selective_output_t o control_weight
    final_output_t     = adjusted_output_t + state_t o feedback_weight

`ConbaLayer` is these equations; what its states are is the config's `form`.

**`seed`** is the text: A and B are real D x D matrices without bias, as wide as the input, and there is nothing else.
(In code that goes with the text the state before is always missing, so the state is B x_t, and A gets no gradient.)

What A can be: every real matrix whose operator norm is below `max_radius`, and no other. For W any real D x D matrix
let [W; I] = [Q; S] R be its QR decomposition with a positive diagonal of R; then A = max_radius Q. Proof: Q'Q + S'S = I
and S = R^-1 is invertible, so |Qv|^2 = |v|^2 - |Sv|^2 < |v|^2 for v != 0. The other way round, for |K| < 1 there is one
upper triangular R with a positive diagonal and R R' = (I - K'K)^-1, and W = K R gives Q = K. So W is free and no A is
reached twice. An A of smaller spectral radius but larger norm, whose states grow before they fade, is not reached.

Why it is stable: |state_t| <= max_radius |state_{t-1}| + |B x_t|, so |state_t| <= max_t |B x_t| / (1 - max_radius).

**`diagonal`** is a layer of its own in the same place (after Orvieto et al. 2023, "Resurrecting recurrent neural
networks for long sequences", sections 3.2 to 3.4), with N complex channels:

    s_t     = lambda o s_{t-1} + sqrt(1 - |lambda|^2) o (enter x_t)
    state_t = Re(leave s_t)

`enter` and `leave` are learned complex matrices, independent of each other, and only the real part is read: in
general state_t is no function of state_{t-1} and x_t, so no D x D matrix A gives these states. |lambda| = max_radius *
sigmoid(r) is below 1 for any r, so a channel is bounded by its largest input / (1 - max_radius). Its output is
x_t + fc2(C(final_output_t)), and it begins as x_t.

Shapes: B lanes, T places of the sequence, E width of what is pooled, D width inside, N channels of the state.
"""

import math
from typing import Literal, Self

import torch
from pydantic import PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn import functional

from cluster.config import Config
from finetune.layers.scan import linear_scan, matrix_scan
from pretrain.model.precision import at_least_float32

MAX_RADIUS = 0.999
"""Bound of the norm of A, or of |lambda|."""
_FIRST_RADII = (0.5, 0.99)
"""The range of the initial radii, as shares of `max_radius`: memories of two to a hundred places."""
_FIRST_ANGLES = (0.0, math.pi / 10)


class ConbaConfig(Config):
    """The layer's shape; each switch turned off is an ablation."""

    form: Literal["seed", "diagonal"] = "diagonal"
    """The form of the state."""
    dim: PositiveInt = 128
    """D: width inside; a matrix projects an input of another width to it."""
    state_dim: PositiveInt | None = None
    """N: channels of the state of form `diagonal`; None: `dim`."""
    gate: bool = True
    """Off: selective_output_t is x_t."""
    state: bool = True
    """Off: the output contains no state; every place is computed by itself."""
    recurrence: bool = True
    """Off: A is 0."""
    control: bool = True
    """Off: control_weight stays 1."""
    feedback: bool = True
    """Off: feedback_weight stays 1."""
    residual: bool = True
    """For form `diagonal`: add the input to the output, and initialise fc2 with zeros, so that training starts from the
    encoder's output."""

    @model_validator(mode="after")
    def _sized_by_form(self) -> Self:
        if self.form == "seed" and self.state_dim is not None:
            raise ValueError(
                "state_dim is of form diagonal: in form seed the state is as wide as the input (dim)"
            )
        return self


class SeedStates(nn.Module):
    """state_t = A state_{t-1} + B x_t with real matrices [D, D].

    Without `recurrent` it has no `W_DD` and no transition.
    """

    def __init__(self, dim: int, max_radius: float, recurrent: bool = True) -> None:
        super().__init__()
        self.max_radius = max_radius
        self.W_DD = nn.Parameter(torch.empty(dim, dim))
        self.B = nn.Linear(dim, dim, bias=False)
        # A starts as decaying rotations in orthogonal planes; inputs are scaled so that long memories start no larger.
        basis_DD = nn.init.orthogonal_(torch.empty(dim, dim, dtype=torch.float64))
        radius_D = torch.empty((dim + 1) // 2, dtype=torch.float64).uniform_(*_FIRST_RADII)
        radius_D = radius_D.repeat_interleave(2)[:dim]
        angle = torch.empty(dim // 2, dtype=torch.float64).uniform_(*_FIRST_ANGLES)
        sine = torch.stack([angle.sin(), torch.zeros_like(angle)], dim=1).flatten()[: dim - 1]
        cosine_D = torch.cat([angle.cos().repeat_interleave(2), angle.new_ones(dim % 2)])
        turn_DD = torch.diag(cosine_D) + torch.diag(sine, -1) - torch.diag(sine, 1)
        self.set_transition(max_radius * basis_DD @ (turn_DD * radius_D) @ basis_DD.T)
        nn.init.normal_(self.B.weight, std=dim**-0.5)
        scale_D = (1.0 - (max_radius * radius_D).square()).sqrt()
        with torch.no_grad():
            self.B.weight.copy_((basis_DD * scale_D) @ (basis_DD.T @ self.B.weight.double()))
        if not recurrent:
            # B is initialised as it is with A; an unused W_DD would be counted and saved.
            del self.W_DD

    def transition(self) -> Tensor:
        """Return A [D, D], in float32 at least."""
        free_DD = at_least_float32(self.W_DD)
        identity_DD = torch.eye(len(free_DD), dtype=free_DD.dtype, device=free_DD.device)
        orthonormal, triangular_DD = torch.linalg.qr(torch.cat([free_DD, identity_DD]))
        share_DD: Tensor = (
            orthonormal[: len(free_DD)] * triangular_DD.diagonal().sign()
        )  # LAPACK's diagonal may be negative
        return self.max_radius * share_DD

    @torch.no_grad()
    def set_transition(self, matrix_DD: Tensor) -> None:
        """Set A to this matrix. Raises ValueError if its norm is not below `max_radius`."""
        share_DD = matrix_DD.detach().double() / self.max_radius
        missing_DD = torch.eye(len(share_DD), dtype=share_DD.dtype) - share_DD.T @ share_DD
        factor_DD, failed = torch.linalg.cholesky_ex(torch.linalg.inv(missing_DD).flip(0, 1))
        if failed or torch.linalg.matrix_norm(share_DD, 2) >= 1.0:
            raise ValueError(f"the norm of A is not below max_radius={self.max_radius}")
        self.W_DD.copy_(share_DD @ factor_DD.flip(0, 1))

    def forward(self, x_BTD: Tensor, is_text_BT: Tensor, recurrent: bool = True) -> Tensor:
        """Return the states [B, T, D] in float32 at least; a place that is not text does not change the state.

        Without `recurrent` A is 0.
        """
        input_BTD = at_least_float32(self.B(x_BTD))
        if not recurrent:
            return input_BTD
        with torch.autocast(x_BTD.device.type, enabled=False):
            # Padding is moved after the text, where it changes no state of the text.
            order_BT1 = (~is_text_BT).to(torch.uint8).argsort(dim=1, stable=True)[:, :, None]
            ordered_BTD = input_BTD.gather(1, order_BT1.expand_as(input_BTD))
            state_BTD = matrix_scan(self.transition().to(input_BTD.dtype), ordered_BTD)
            return state_BTD.gather(1, order_BT1.argsort(dim=1).expand_as(state_BTD))


class DiagonalStates(nn.Module):
    """The states of form `diagonal`, for x of width D."""

    def __init__(self, dim: int, state_dim: int, max_radius: float) -> None:
        super().__init__()
        self.max_radius = max_radius
        radius_N = torch.empty(state_dim).uniform_(*_FIRST_RADII)
        self.radius_logit_N = nn.Parameter(torch.logit(radius_N))
        self.angle_N = nn.Parameter(torch.empty(state_dim).uniform_(*_FIRST_ANGLES))
        # Real and imaginary parts side by side, because optimizers and files support real numbers only.
        self.enter = nn.Linear(dim, 2 * state_dim, bias=False)
        self.leave = nn.Linear(2 * state_dim, dim, bias=False)
        nn.init.normal_(self.enter.weight, std=(2 * dim) ** -0.5)
        nn.init.normal_(self.leave.weight, std=state_dim**-0.5)

    def eigenvalues(self) -> Tensor:
        """Return lambda, complex [N], with absolute values below `max_radius`, in float32 at least."""
        radius_N = self.max_radius * torch.sigmoid(at_least_float32(self.radius_logit_N))
        return torch.polar(radius_N, at_least_float32(self.angle_N))

    def forward(self, x_BTD: Tensor, is_text_BT: Tensor, recurrent: bool = True) -> Tensor:
        """Return the states [B, T, D] in float32 at least; a place that is not text does not change the state.

        Without `recurrent` lambda is 0, except in the scale of the input, which keeps long memories as small as short
        ones.
        """
        entered = at_least_float32(self.enter(x_BTD))
        with torch.autocast(x_BTD.device.type, enabled=False):
            input_BTN = torch.complex(*entered.chunk(2, dim=-1))
            eigenvalue_N = self.eigenvalues().to(input_BTN.dtype)
            input_BTN = input_BTN * (1.0 - eigenvalue_N.abs().square()).sqrt()
            input_BTN = input_BTN * is_text_BT[:, :, None]
            if recurrent:
                decay_BTN = torch.where(is_text_BT[:, :, None], eigenvalue_N, torch.ones_like(eigenvalue_N))
                input_BTN = linear_scan(decay_BTN, input_BTN)
            state_BTD: Tensor = self.leave(
                torch.cat([input_BTN.real, -input_BTN.imag], dim=-1).to(self.leave.weight.dtype)
            )
        return at_least_float32(state_BTD)


class ConbaLayer(nn.Module):
    """The layer that computes final_output_t of the module's docstring, for sequences with padding anywhere."""

    def __init__(self, config: ConbaConfig) -> None:
        super().__init__()
        dim = config.dim
        self.config = config
        self.states: SeedStates | DiagonalStates | None = None
        if config.state:
            self.states = (
                SeedStates(dim, MAX_RADIUS, config.recurrence)
                if config.form == "seed"
                else DiagonalStates(dim, config.state_dim or dim, MAX_RADIUS)
            )
        self.selective_fc = nn.Linear(dim, dim) if config.gate else None
        self.control_weight_D = _weight(dim, config.control)
        self.feedback_weight_D = _weight(dim, config.feedback and config.state)

    def forward(self, x_BTD: Tensor, is_text_BT: Tensor) -> Tensor:
        """Return the outputs [B, T, D] in float32 at least.

        `is_text_BT` (bool) is False at padding, which changes no other place; outputs at padding are undefined.
        """
        selective_BTD = x_BTD
        if self.selective_fc is not None:
            selective_BTD = functional.silu(self.selective_fc(x_BTD)) * x_BTD
        output_BTD = at_least_float32(selective_BTD)
        if self.control_weight_D is not None:
            output_BTD = output_BTD * self.control_weight_D
        if self.states is not None:
            state_BTD = self.states(x_BTD, is_text_BT, self.config.recurrence)
            if self.feedback_weight_D is not None:
                state_BTD = state_BTD * self.feedback_weight_D
            output_BTD = output_BTD + state_BTD
        return output_BTD


class ConbaBlock(nn.Module):
    """A ConbaLayer for inputs of any width, with the output projections of form `diagonal`."""

    def __init__(self, config: ConbaConfig, width: int) -> None:
        super().__init__()
        dim = config.dim
        self.inward = nn.Identity() if dim == width else nn.Linear(width, dim, bias=False)
        self.layer = ConbaLayer(config)
        self.outward: nn.Sequential | None = None
        self.width = dim
        """The width of its outputs."""
        self.residual = config.form == "diagonal" and config.residual
        if config.form == "diagonal":
            self.width = width
            self.outward = nn.Sequential(nn.Linear(dim, dim, bias=False), nn.Linear(dim, width))  # C and fc2
            if self.residual:
                for parameter in self.outward[1].parameters():
                    nn.init.zeros_(parameter)

    def forward(self, x_BTE: Tensor, is_text_BT: Tensor) -> Tensor:
        """Return the outputs [B, T, `width`] in float32 at least; see `ConbaLayer`."""
        dtype = next(self.parameters(), x_BTE).dtype
        output_BTD: Tensor = self.layer(self.inward(x_BTE.to(dtype)), is_text_BT)
        if self.outward is None:
            return output_BTD
        output_BTE = at_least_float32(self.outward(output_BTD.to(dtype)))
        return x_BTE + output_BTE if self.residual else output_BTE


def _weight(dim: int, learned: bool) -> nn.Parameter | None:
    return nn.Parameter(torch.ones(dim)) if learned else None
