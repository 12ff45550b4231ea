"""The settings of an engine, and the DeepSpeed configuration made from them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from pretrain.config import PretrainConfig


@dataclass(frozen=True)
class EngineSettings:
    """Settings of an engine: how gradients are summed, clipped and applied. A step consists of equal micro-batches."""

    micro_batches: int
    """Micro-batches per step, over all workers."""
    micro_batch_items: int
    """Lanes or examples per micro-batch, as DeepSpeed counts them."""
    precision: Literal["bf16", "fp32"]
    zero_stage: Literal[0, 1, 2, 3]
    clip_norm: float
    deterministic: bool = False
    offload_optimizer: bool = False
    offload_parameters: bool = False

    @classmethod
    def of_pretraining(cls, config: PretrainConfig) -> "EngineSettings":
        """Make the settings of a pretraining run."""
        return cls(
            micro_batches=config.lanes // config.micro_batch_lanes,
            micro_batch_items=config.micro_batch_lanes,
            precision=config.precision,
            zero_stage=config.zero_stage,
            clip_norm=config.optimizer.clip_norm,
            deterministic=config.deterministic,
            offload_optimizer=config.offload_optimizer,
            offload_parameters=config.offload_parameters,
        )

    @property
    def decides_on_device(self) -> bool:
        """Whether the device clips and refuses updates, without the host; not where the host updates or sums.

        With offloading the weights are updated in CPU memory. The deterministic sum scales by a number that it reads.
        """
        return not (self.deterministic or self.offload_optimizer or self.offload_parameters)

    @property
    def deepspeed_clips(self) -> bool:
        """Whether DeepSpeed clips gradients and skips updates that are not finite."""
        return not (self.deterministic or self.decides_on_device)


_NEVER_PRINT_STEPS = 1 << 30
_LARGEST_BUCKET_ELEMENTS = 500_000_000
_BUCKETS_ON_GPU = 8
_LARGEST_BUCKET_ON_GPU_ELEMENTS = 50_000_000
"""100 MB in bfloat16: enough for the full rate of links, few enough for many buckets of a large model."""


def deepspeed_config(
    settings: EngineSettings, world_size: int, parameters: Sequence[Tensor], on_gpu: bool
) -> dict[str, Any]:
    """Return DeepSpeed's configuration for `world_size` workers that train `parameters`."""
    micro_batches = settings.micro_batches // world_size
    items = settings.micro_batches * settings.micro_batch_items
    described: dict[str, Any] = {
        "train_batch_size": items,
        "train_micro_batch_size_per_gpu": settings.micro_batch_items,
        "gradient_accumulation_steps": micro_batches,
        "zero_optimization": _zero(settings, micro_batches, parameters, on_gpu),
        "bf16": {
            "enabled": settings.precision == "bf16",
            "check_grad_overflow": not settings.decides_on_device,
        },
        "gradient_clipping": settings.clip_norm if settings.deepspeed_clips else 0.0,
        "steps_per_print": _NEVER_PRINT_STEPS,
        "timers": {"throughput": {"enabled": False, "synchronized": False}},
        # torch's fused Adam works for offloaded states too; DeepSpeed's own takes a minute to compile.
        "zero_force_ds_cpu_optimizer": False,
    }
    if _sums_in_float32(settings, micro_batches):
        described["data_types"] = {"grad_accum_dtype": "fp32"}
    if settings.deterministic:
        # The engine gets one gradient per step, which is already summed and clipped.
        described |= {
            "train_micro_batch_size_per_gpu": items // world_size,
            "gradient_accumulation_steps": 1,
        }
        described.pop("data_types", None)
    return described


def _sums_in_float32(settings: EngineSettings, micro_batches: int) -> bool:
    """Return whether DeepSpeed is configured to sum a worker's `micro_batches` gradients in float32.

    Sums of many bfloat16 gradients lose the small ones. Without ZeRO, DeepSpeed has no other.
    """
    return micro_batches > 1 and settings.precision == "bf16" and settings.zero_stage > 0


def _zero(
    settings: EngineSettings, micro_batches: int, parameters: Sequence[Tensor], on_gpu: bool
) -> dict[str, Any]:
    vectors = [parameter.numel() for parameter in parameters if parameter.dim() < 2]
    zero: dict[str, Any] = {
        "stage": settings.zero_stage,
        "reduce_bucket_size": _bucket_elements(parameters, on_gpu),
        "overlap_comm": on_gpu,
        # ZeRO 3 partitions all matrices, whatever the model's size.
        "stage3_param_persistence_threshold": max(vectors, default=0),
        # On GPUs ZeRO 3 saves no gathered weights for the backward pass; this replaces torch's linear by a slower
        # one in the whole process, so on CPUs it is off.
        "memory_efficient_linear": on_gpu,
    }
    if settings.decides_on_device and settings.zero_stage in (1, 2):
        # DeepSpeed refuses this with sums in float32 under ZeRO 1; `device_update.py` replaces its step there.
        zero["compute_grad_norm"] = settings.zero_stage == 1 and _sums_in_float32(settings, micro_batches)
    if settings.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": on_gpu}
    if settings.offload_parameters:
        zero["offload_param"] = {"device": "cpu", "pin_memory": on_gpu}
    return zero


def _bucket_elements(parameters: Sequence[Tensor], on_gpu: bool) -> int:
    """Return how many gradients DeepSpeed collects before it exchanges them; it allocates them for the whole run.

    On a GPU there are several buckets, so that the first ones are exchanged while the backward pass goes on. None is
    smaller than the largest parameter, for which DeepSpeed would need an exchange, and memory, of its own.
    """
    sizes = [parameter.numel() for parameter in parameters]
    if not on_gpu:
        return min(sum(sizes), _LARGEST_BUCKET_ELEMENTS)
    return max(*sizes, min(sum(sizes) // _BUCKETS_ON_GPU, _LARGEST_BUCKET_ON_GPU_ELEMENTS))
