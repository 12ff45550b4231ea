"""ConbaLayer: a state-space scan with a selective gate, control and feedback weights.

For the input x_t of place t:

    state_t  = A state_{t-1} + B x_t
    gated_t  = swish(selective_fc(x_t)) * x_t
    output_t = fc2(C(gated_t * control_weight + state_t * feedback_weight))

In the source that this follows the state before was always missing, so the state was B x_t, and A got no gradient; here
the recurrence is real.

**What A can be.** A is kept as V diag(lambda) V^-1 with N complex eigenvalues, so that a step is a product per
channel and the whole sequence one parallel scan. The state is carried in the basis of eigenvectors,
s_t = lambda * s_{t-1} + (V^-1 B) x_t, and read as Re(V s_t). V^-1 B and V are the learned matrices `enter` and `leave`.
With N equal to the width every real matrix that can be diagonalised, and those are dense among all, is covered exactly
together with its B; with a smaller N A is of rank N. The same form is in Orvieto et al. 2023, "Resurrecting recurrent
neural networks for long sequences", sections 3.2 to 3.4.

**Why it is stable.** |lambda| = max_radius * sigmoid(r) is below 1 for any r, so an input bounded by u gives a state
bounded by u / (1 - max_radius) at every length.

Shapes: B lanes, T places of the sequence, E width of input and output, D width inside, N channels of the state.
"""

import math

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from cluster.config import Config
from finetune.layers.scan import linear_scan
from pretrain.model.precision import at_least_float32

_FIRST_RADII = (0.5, 0.99)
"""Between these the radii lie at the start, as shares of `max_radius`: memories of two to a hundred places."""


class ConbaConfig(Config):
    """The layer's shape; each switch turned off is an ablation."""

    dim: PositiveInt = 128
    """D: width inside; the input is brought to it by a matrix where it is of another."""
    state_dim: PositiveInt | None = None
    """N: channels of the state; None for `dim`."""
    max_radius: float = Field(default=0.999, gt=0.0, le=0.9999)
    """Bound of the spectral radius of A."""
    gate: bool = True
    """Off: gated_t is x_t."""
    state: bool = True
    """Off: there is no state in the output; the layer looks at every place by itself."""
    recurrence: bool = True
    """Off: A is 0, so that state_t = B x_t, as in the source's code."""
    control: bool = True
    """Off: control_weight stays 1."""
    feedback: bool = True
    """Off: feedback_weight stays 1."""
    residual: bool = True
    """Add the input to the output, and begin with fc2 of zeros: training starts from what the encoder gives."""


class StateSpace(nn.Module):
    """state_t = A state_{t-1} + B x_t, for D-wide x and state."""

    def __init__(self, dim: int, state_dim: int, max_radius: float) -> None:
        super().__init__()
        self.max_radius = max_radius
        radius_N = torch.empty(state_dim).uniform_(*_FIRST_RADII)
        self.radius_logit_N = nn.Parameter(torch.logit(radius_N))
        self.angle_N = nn.Parameter(torch.empty(state_dim).uniform_(0.0, math.pi / 10))
        # Real and imaginary parts side by side: optimizers and files know real numbers only.
        self.enter = nn.Linear(dim, 2 * state_dim, bias=False)
        self.leave = nn.Linear(2 * state_dim, dim, bias=False)
        nn.init.normal_(self.enter.weight, std=(2 * dim) ** -0.5)
        nn.init.normal_(self.leave.weight, std=state_dim**-0.5)

    def eigenvalues(self) -> Tensor:
        """lambda, complex [N], of length below `max_radius`, in float32 at least."""
        radius_N = self.max_radius * torch.sigmoid(at_least_float32(self.radius_logit_N))
        return torch.polar(radius_N, at_least_float32(self.angle_N))

    def forward(self, x_BTD: Tensor, is_text_BT: Tensor, recurrent: bool = True) -> Tensor:
        """States [B, T, D] in float32 at least; a place that is no text leaves the state as it is.

        Without `recurrent` A is 0. The input of a channel is scaled by sqrt(1 - |lambda|^2), so that long memories
        give states no larger than short ones (part of B).
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
    """The layer of the module's docstring, over sequences with padding anywhere."""

    def __init__(self, config: ConbaConfig, width: int) -> None:
        super().__init__()
        dim = config.dim
        self.config = config
        self.inward = nn.Identity() if dim == width else nn.Linear(width, dim, bias=False)
        self.space = StateSpace(dim, config.state_dim or dim, config.max_radius) if config.state else None
        self.selective_fc = nn.Linear(dim, dim) if config.gate else None
        self.control_weight_D = _weight(dim, config.control)
        self.feedback_weight_D = _weight(dim, config.feedback and config.state)
        self.C = nn.Linear(dim, dim, bias=False)
        self.fc2 = nn.Linear(dim, width)
        if config.residual:
            nn.init.zeros_(self.fc2.weight)
            nn.init.zeros_(self.fc2.bias)

    def forward(self, x_BTE: Tensor, is_text_BT: Tensor) -> Tensor:
        """Outputs [B, T, E] in float32 at least. `is_text_BT` (bool) is False at padding, which changes no other
        place; outputs at padding mean nothing."""
        x_BTD = self.inward(x_BTE.to(self.C.weight.dtype))
        gated_BTD = x_BTD
        if self.selective_fc is not None:
            gated_BTD = functional.silu(self.selective_fc(x_BTD)) * x_BTD
        mixed_BTD = at_least_float32(gated_BTD)
        if self.control_weight_D is not None:
            mixed_BTD = mixed_BTD * self.control_weight_D
        if self.space is not None:
            state_BTD = self.space(x_BTD, is_text_BT, self.config.recurrence)
            if self.feedback_weight_D is not None:
                state_BTD = state_BTD * self.feedback_weight_D
            mixed_BTD = mixed_BTD + state_BTD
        output_BTE = at_least_float32(self.fc2(self.C(mixed_BTD.to(self.C.weight.dtype))))
        return x_BTE + output_BTE if self.config.residual else output_BTE


def _weight(dim: int, learned: bool) -> nn.Parameter | None:
    return nn.Parameter(torch.ones(dim)) if learned else None
