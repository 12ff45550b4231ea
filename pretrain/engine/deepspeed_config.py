"""What DeepSpeed is told about a run."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from pretrain.config import PretrainConfig

_NEVER_PRINT_STEPS = 1 << 30
_LARGEST_BUCKET_ELEMENTS = 500_000_000


def deepspeed_config(
    config: PretrainConfig, world_size: int, parameters: Sequence[Tensor], on_gpu: bool
) -> dict[str, Any]:
    """DeepSpeed's configuration of a run with `world_size` workers that trains `parameters`."""
    micro_batches = config.lanes // (world_size * config.micro_batch_lanes)
    described: dict[str, Any] = {
        "train_batch_size": config.lanes,
        "train_micro_batch_size_per_gpu": config.micro_batch_lanes,
        "gradient_accumulation_steps": micro_batches,
        "zero_optimization": _zero(config, parameters, on_gpu),
        "bf16": {"enabled": config.precision == "bf16"},
        "gradient_clipping": config.optimizer.clip_norm if deepspeed_clips(config) else 0.0,
        "steps_per_print": _NEVER_PRINT_STEPS,
        # torch's fused Adam serves for offloaded states too; DeepSpeed's own takes a minute to compile.
        "zero_force_ds_cpu_optimizer": False,
    }
    if micro_batches > 1 and config.precision == "bf16" and config.zero_stage > 0:
        # Sums of many bfloat16 gradients lose the small ones. Without ZeRO, DeepSpeed knows no other.
        described["data_types"] = {"grad_accum_dtype": "fp32"}
    if config.deterministic:
        # One gradient is handed to the engine per step, summed and clipped already.
        described |= {
            "train_micro_batch_size_per_gpu": config.lanes // world_size,
            "gradient_accumulation_steps": 1,
        }
        described.pop("data_types", None)
    return described


def deepspeed_clips(config: PretrainConfig) -> bool:
    """Whether DeepSpeed clips gradients and leaves out updates that are not finite.

    It does so only where it wraps the optimizer: not in float32 without ZeRO.
    """
    return not config.deterministic and (config.zero_stage > 0 or config.precision == "bf16")


def _zero(config: PretrainConfig, parameters: Sequence[Tensor], on_gpu: bool) -> dict[str, Any]:
    bucket = min(sum(parameter.numel() for parameter in parameters), _LARGEST_BUCKET_ELEMENTS)
    vectors = [parameter.numel() for parameter in parameters if parameter.dim() < 2]
    zero: dict[str, Any] = {
        "stage": config.zero_stage,
        # Buffers of this size are kept for every run; the default is for models of billions.
        "reduce_bucket_size": bucket,
        "overlap_comm": on_gpu,
        # ZeRO 3 shares out matrices, of models of any size.
        "stage3_param_persistence_threshold": max(vectors, default=0),
        # ZeRO 3 on GPUs saves no gathered weights for the backward pass; for that torch's linear is exchanged, in
        # the whole process, for a slower one.
        "memory_efficient_linear": on_gpu,
    }
    if config.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": on_gpu}
    if config.offload_parameters:
        zero["offload_param"] = {"device": "cpu", "pin_memory": on_gpu}
    return zero
