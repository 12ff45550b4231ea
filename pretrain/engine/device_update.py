"""Updates about which the device decides: the host reads neither the gradient nor its norm.

DeepSpeed's optimizers read the norm in `step`, to clip and to refuse gradients that are not finite, and each read waits
for all that the GPU has been given. Here the norm, the factor that clips and the refusal stay tensors. torch's fused
AdamW takes the refusal as `found_inf` and then leaves weights, moments and step counts as they are.

What DeepSpeed 0.19.8 reads, and what is done about it:

| optimizer | reads | instead |
|---|---|---|
| ZeRO 1 and 2 (`zero/stage_1_and_2.py`) | overflow, norm | switched off: `check_grad_overflow`, `compute_grad_norm` |
| ZeRO 3 (`zero/stage3.py`) | norm, always | it gets a norm of 1, made by the host |
| ZeRO 1, sums in float32 (`bf16_optimizer.py`) | norm and factor, always | `_step_of_bf16_optimizer` |
| no ZeRO, bfloat16 (`fp16/unfused_optimizer.py`) | each gradient, norm and factor | `_step_of_unfused_optimizer` |
| no ZeRO, float32 | nothing: torch's own optimizer | |

Clipping is in torch's optimizer's hook before each step, of which ZeRO makes one per group of parameters. Norms and
factors are computed in DeepSpeed's order and precision, so the bits are those of its own clipping.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pretrain.engine.state import base_optimizer

_EPSILON = 1e-6
"""Added to the norm before it divides, as DeepSpeed and torch do."""


class DeviceUpdate:
    """Makes the updates of a DeepSpeed engine whose optimizer is torch's fused AdamW, without a read by the host."""

    def __init__(self, engine: Any, parameters: Sequence[nn.Parameter], clip_norm: float) -> None:
        """Replace what reads in `engine`'s optimizer; `parameters` are those that it trains."""
        self._engine, self._clip_norm = engine, clip_norm
        self._base = base_optimizer(engine)
        if not self._base.defaults["fused"]:
            raise ValueError("only torch's fused AdamW can refuse an update on the device")
        self._norm, self._divides_by_clip_norm = _prepared(engine.optimizer, parameters)
        self._factor = torch.ones((), device=engine.device)
        self._base.register_step_pre_hook(self._clip)

    def make(self, is_loss_finite: Tensor | None) -> tuple[Tensor, Tensor]:
        """Update the weights with the accumulated gradient, clipped, if it and the loss are finite; collective.

        Returns the gradient's norm before clipping and whether the update was applied, bool, both of shape [].
        """
        norm = self._norm()
        is_applied = torch.isfinite(norm)
        if is_loss_finite is not None:
            is_applied = is_applied & is_loss_finite
        self._factor = self._factor_of(norm).to(torch.float32)
        refusal: Any = self._base
        refusal.found_inf = (~is_applied).to(torch.float32)
        self._engine.step()
        return norm, is_applied

    def _factor_of(self, norm: Tensor) -> Tensor:
        """Return what gradients are multiplied by, in one of two ways that may differ in the last bit."""
        if self._divides_by_clip_norm:
            return 1.0 / ((norm + _EPSILON) / self._clip_norm).clamp(min=1.0)
        return (self._clip_norm / (norm + _EPSILON)).clamp(max=1.0)

    @torch.no_grad()
    def _clip(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Clip the gradients of this step of torch's optimizer; ZeRO makes one step per group."""
        masters = [master for group in optimizer.param_groups for master in group["params"]]
        gradients = [master.grad for master in masters if master.grad is not None]
        if gradients:
            torch._foreach_mul_(gradients, self._factor)


def _prepared(optimizer: Any, parameters: Sequence[nn.Parameter]) -> tuple[Callable[[], Tensor], bool]:
    """Replace what reads in one of DeepSpeed's optimizers.

    Returns the function that computes its gradient's norm, and whether it divides by the norm to clip to when it clips.
    """
    if hasattr(optimizer, "fp32_partitioned_groups_flat"):  # ZeRO 3
        optimizer._get_norm_groups, optimizer.unscale_and_clip_grads = _norm_of_one, _leave_alone
        return partial(_norm_of_zero_3, optimizer), True
    if hasattr(optimizer, "single_partition_of_fp32_groups"):  # ZeRO 1 and 2
        return partial(_norm_of_zero_1_and_2, optimizer), True
    if hasattr(optimizer, "fp32_groups_flat_partition"):  # ZeRO 1, bfloat16, gradients summed in float32
        optimizer.step = partial(_step_of_bf16_optimizer, optimizer)
        return partial(_norm_of_bf16_optimizer, optimizer), False
    if hasattr(optimizer, "fp32_groups"):  # no ZeRO, bfloat16
        optimizer.step = partial(_step_of_unfused_optimizer, optimizer)
        return partial(_norm_of_unfused_optimizer, optimizer), True
    return partial(_norm_of_whole_gradients, parameters), False


def _norm_of_one() -> list[float]:
    return [1.0]


def _leave_alone(*_: Any) -> None:
    """Replace a function that would multiply all gradients by 1."""


def _norm_of_zero_1_and_2(optimizer: Any) -> Tensor:
    """Return the norm of all workers' shares; every parameter group is summed and exchanged on its own."""
    norms: list[Tensor] = []
    for number, parameters in enumerate(optimizer.params_in_partition):
        shares = [
            share
            for share in optimizer.averaged_gradients[number]
            if not getattr(share, "_zero_padding", False)
        ]
        squares = _squared_norms(shares[: len(parameters)], optimizer.device).to(torch.float32)
        dist.all_reduce(squares, group=optimizer.dp_process_group)
        norms.append(squares.sqrt())
    return _norm(norms)


def _norm_of_zero_3(optimizer: Any) -> Tensor:
    """Return the norm of all workers' shares, in float64; every group is summed and exchanged on its own."""
    norms = []
    for number, parameters in enumerate(optimizer.fp16_groups):
        squares = _squared_norms(optimizer.averaged_gradients[number], optimizer.device)
        dist.all_reduce(squares, group=optimizer._get_param_partition_group(parameters[0]))
        norms.append(squares.sqrt())
    return _norm(norms)


def _norm(norms: Sequence[Tensor]) -> Tensor:
    """Return the norm of what has these norms."""
    norm: Tensor = torch.linalg.vector_norm(torch.stack(list(norms)))
    return norm


def _squared_norms(shares: Sequence[Tensor], device: torch.device) -> Tensor:
    """Return the sum of the squared norms, float64 []; 0 for no shares."""
    if not shares:
        return torch.zeros((), dtype=torch.float64, device=device)
    norms = [torch.linalg.vector_norm(share, dtype=torch.float64) for share in shares]
    return torch.stack(norms).square().sum()


def _norm_of_bf16_optimizer(optimizer: Any) -> Tensor:
    """Return the norm of the gradients' float32 sums, which every worker has whole."""
    gradients, _ = optimizer.get_grads_for_norm()
    norms = [torch.linalg.vector_norm(gradient.to(torch.float32)) for gradient in gradients]
    return torch.stack(norms).square().sum().sqrt()


@torch.no_grad()
def _step_of_bf16_optimizer(optimizer: Any) -> None:
    """Replace `BF16_Optimizer.step`: the same without its norm, its checks and its clipping."""
    for master, gradient in zip(
        optimizer.fp32_groups_flat_partition, optimizer.fp32_groups_gradient_flat_partition, strict=True
    ):
        master.grad = gradient
    optimizer.optimizer.step()
    optimizer._lazy_init_hp_params_optimizer_state()
    optimizer.update_lp_params()
    optimizer.clear_hp_grads()


def _norm_of_unfused_optimizer(optimizer: Any) -> Tensor:
    """Return the norm of the bfloat16 gradients: squares are added in float32 in a group, in float64 between groups."""
    total = torch.zeros((), dtype=torch.float64, device=optimizer.fp32_groups[0][0].device)
    for group in optimizer.fp16_groups:
        squares = torch.zeros((), device=total.device)
        for parameter in group:
            if parameter.grad is not None:
                squares += torch.linalg.vector_norm(parameter.grad.to(torch.float32)).square()
        total += squares.to(torch.float64).sqrt().square()
    return total.sqrt()


@torch.no_grad()
def _step_of_unfused_optimizer(optimizer: Any) -> bool:
    """Replace `FP16_UnfusedOptimizer.step`: the same without its norm, its checks and its clipping."""
    pairs = [
        pair
        for masters, parameters in zip(optimizer.fp32_groups, optimizer.fp16_groups, strict=True)
        for pair in zip(masters, parameters, strict=True)
    ]
    for master, parameter in pairs:
        is_unused = parameter.grad is None
        master.grad = torch.zeros_like(master) if is_unused else parameter.grad.to(master.dtype)
    optimizer.optimizer.step()
    for master, parameter in pairs:
        master.grad = None
        parameter.copy_(master)
    return False


def _norm_of_whole_gradients(parameters: Sequence[nn.Parameter]) -> Tensor:
    """Return the norm of the parameters' own gradients, which every worker has whole.

    A parameter without gradient gets zeros, as from DeepSpeed with several workers: Adam's step counts must agree.
    """
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return torch.nn.utils.get_total_norm([one.grad for one in parameters if one.grad is not None])
