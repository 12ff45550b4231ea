"""The DeepSpeed engine around the model: construction, and its state by parameter name.

Engine state is read and written as whole float32 tensors per parameter, so nothing outside this file depends on
how ZeRO cut it into partitions or how many workers there were.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pretrain.config import PretrainConfig
from pretrain.model.transformer import TwoStreamTransformer

_MOMENTS = ("exp_avg", "exp_avg_sq")
_NEVER_PRINT_STEPS = 1 << 30


@dataclass(frozen=True)
class EngineState:
    """float32 masters and Adam moments by parameter name, and Adam's own step count."""

    masters: dict[str, Tensor]
    moments: dict[str, Tensor]
    """Keys `exp_avg.NAME` and `exp_avg_sq.NAME`."""
    adam_steps: int


def build_engine(model: TwoStreamTransformer, config: PretrainConfig, world_size: int) -> Any:
    """A DeepSpeedEngine over `model`; the process group must stand."""
    import deepspeed

    engine, *_ = deepspeed.initialize(
        model=model, optimizer=_optimizer(model, config), config=_deepspeed_config(config, world_size)
    )
    return engine


def _optimizer(model: TwoStreamTransformer, config: PretrainConfig) -> torch.optim.AdamW:
    matrices = [parameter for parameter in model.parameters() if parameter.dim() >= 2]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    settings = config.optimizer
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": settings.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=config.schedule.peak_learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
    )


def _deepspeed_config(config: PretrainConfig, world_size: int) -> dict[str, Any]:
    return {
        "train_batch_size": config.lanes,
        "train_micro_batch_size_per_gpu": config.micro_batch_lanes,
        "gradient_accumulation_steps": config.lanes // (world_size * config.micro_batch_lanes),
        "zero_optimization": {"stage": config.zero_stage},
        "bf16": {"enabled": config.precision == "bf16"},
        "gradient_clipping": config.optimizer.clip_norm,
        "steps_per_print": _NEVER_PRINT_STEPS,
    }


def set_learning_rate(engine: Any, rate: float) -> None:
    """The rate of the next optimizer step, in every parameter group."""
    for group in engine.optimizer.param_groups:
        group["lr"] = rate


def gather_state(engine: Any) -> EngineState:
    """The whole state on every worker. Collective: every worker must call it."""
    from deepspeed.utils import safe_get_full_optimizer_state

    _link_moments(engine.optimizer)
    moments = {
        f"{kind}.{name}": safe_get_full_optimizer_state(parameter, kind).cpu()
        for name, parameter in engine.module.named_parameters()
        for kind in _MOMENTS
    }
    base = engine.optimizer.optimizer
    return EngineState(gather_masters(engine), moments, int(next(iter(base.state.values()))["step"]))


def gather_masters(engine: Any) -> dict[str, Tensor]:
    """The float32 weights by parameter name, on every worker. Collective."""
    from deepspeed.utils import safe_get_full_fp32_param

    return {
        name: safe_get_full_fp32_param(parameter).cpu()
        for name, parameter in engine.module.named_parameters()
    }


def restore_state(engine: Any, state: EngineState) -> None:
    """Put a gathered state into a fresh engine of any world size. Collective."""
    from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

    zero = engine.optimizer
    for partition in zero.single_partition_of_fp32_groups:
        # torch creates Adam's state at the first step; a resumed engine needs it before that.
        zero.optimizer.state[partition] = {
            "step": torch.tensor(float(state.adam_steps)),
            **{kind: torch.zeros_like(partition) for kind in _MOMENTS},
        }
    _link_moments(zero)
    with torch.no_grad():
        for name, parameter in engine.module.named_parameters():
            master = state.masters[name].to(parameter.device)
            safe_set_full_fp32_param(parameter, master)
            parameter.copy_(master)
            for kind in _MOMENTS:
                safe_set_full_optimizer_state(
                    parameter, state.moments[f"{kind}.{name}"].to(parameter.device), kind
                )


def _link_moments(zero: Any) -> None:
    """Tell DeepSpeed where each parameter's moments lie.

    It does so itself, but only once and after the first parameter group's first step, when the second group has
    no moments yet (0.19.8).
    """
    zero._hp_optimizer_states_linked = False
    zero._lazy_init_hp_params_optimizer_state()
