"""GPUs: their peaks, memory and prices, and the operations of a run per token.

Peaks are those of the vendor's data sheets for dense matrices; memory is what a program finds of it, rounded down.
Prices are indications for an hour on demand; they differ between sellers by more than a factor of two.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.errors import UserError
from pretrain.config import PretrainConfig
from pretrain.plan.flops import training_flops_per_step
from pretrain.plan.gpu_memory import GIB

if TYPE_CHECKING:
    from pretrain.model.fused.gpu.tile_sizes import Architecture


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU."""

    name: str
    memory_gib: int
    peak_bf16_tflops: float
    peak_fp32_tflops: float
    """The peak without TF32, which PyTorch switches off."""
    usd_per_hour: float
    memory_tb_per_s: float
    multiprocessors: int
    clock_ghz: float
    """Under load."""
    architecture: "Architecture"
    """Whose kernels it runs."""

    @property
    def memory_bytes(self) -> int:
        """The memory that a program can use."""
        return self.memory_gib * GIB

    def peak_flops(self, precision: str) -> float:
        """Return the peak operations per second in "bf16" or "fp32"."""
        return 1e12 * (self.peak_bf16_tflops if precision == "bf16" else self.peak_fp32_tflops)


GPUS = (
    Gpu("l40s", 44, 362.0, 91.6, 1.0, 0.864, 142, 2.5, "sm_80"),
    Gpu("a100-40gb", 39, 312.0, 19.5, 1.3, 1.555, 108, 1.41, "sm_80"),
    Gpu("a100-80gb", 79, 312.0, 19.5, 2.0, 2.0, 108, 1.41, "sm_80"),
    Gpu("h100", 79, 989.4, 66.9, 3.0, 3.35, 132, 1.755, "sm_90"),
    Gpu("h200", 139, 989.4, 66.9, 3.8, 4.8, 132, 1.755, "sm_90"),
    Gpu("b200", 178, 2250.0, 75.0, 5.0, 8.0, 148, 1.85, "sm_100"),
)


def find_gpu(name: str) -> Gpu:
    """Return the GPU of that name, upper or lower case. Raises UserError with the known ones."""
    for gpu in GPUS:
        if gpu.name == name.lower():
            return gpu
    raise UserError(f"unknown GPU {name!r}: known are {', '.join(gpu.name for gpu in GPUS)}")


def flops_per_token(config: PretrainConfig, vocab_size: int) -> float:
    """Return the operations of forward and backward pass per corpus token, without recomputation."""
    flops = training_flops_per_step(
        config.model,
        config.lanes,
        config.segment_tokens,
        config.objective.num_targets(config.segment_tokens),
        vocab_size,
        config.micro_batch_lanes,
        extent_tokens=config.objective.extent(config.segment_tokens),
    )
    return flops / config.tokens_per_step


def gpu_of_device(device_name: str) -> Gpu | None:
    """Return the known GPU with the driver's `device_name`, such as "NVIDIA H100 80GB HBM3"; None for others."""
    spoken = re.sub(r"[^a-z0-9]", "", device_name.lower())
    matches = [gpu for gpu in GPUS if all(part in spoken for part in gpu.name.split("-"))]
    return max(matches, key=lambda gpu: len(gpu.name), default=None)
