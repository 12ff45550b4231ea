"""What a GPU needs to train a run, checked before anything starts: bfloat16 and the memory that the plan counts."""

from pathlib import Path

import torch

from cluster.errors import UserError
from cluster.resources import ResourcesConfig
from pretrain.config import PretrainConfig
from pretrain.model.fused.gpu.choice import LEAST_CAPABILITY, why_no_kernels
from pretrain.plan.gpu_memory import misfit

_DRIVER = Path("/dev/nvidiactl")
"""Exists where NVIDIA's driver runs; importing CUDA to find no GPU takes seconds."""


def check_gpu(config: PretrainConfig, vocab_size: int, num_workers: int, device: torch.device) -> str:
    """Check that `device`, one of `num_workers` GPUs, can train; return why its kernels cannot be used, "" if they can.

    Raises UserError for a GPU that is too old for `config.precision`, or has less memory than the run needs.
    """
    check_precision(config.precision, device)
    found = torch.cuda.get_device_properties(device)
    sharded = config.model_copy(update={"num_workers": num_workers})
    if problem := misfit(sharded, vocab_size, found.total_memory, found.name):
        raise UserError(problem)
    return why_no_kernels(device)


def check_precision(precision: str, device: torch.device) -> None:
    """Raise UserError if a GPU does not compute in `precision`, "bf16" or "fp32"; other devices always do."""
    if device.type != "cuda" or precision != "bf16":
        return
    capability = torch.cuda.get_device_capability(device)
    if capability < LEAST_CAPABILITY:
        raise UserError(
            f"{torch.cuda.get_device_name(device)} (compute capability {'.'.join(map(str, capability))}) does not "
            f"compute in bf16, which needs {'.'.join(map(str, LEAST_CAPABILITY))} or newer: set precision=fp32, or "
            "resources.STAGE.device=cpu"
        )


def check_gpus_here(config: PretrainConfig, vocab_size: int, resources: ResourcesConfig) -> tuple[str, ...]:
    """Check this machine's GPUs like `check_gpu` where the run would use them; return warnings about them."""
    if resources.device == "cpu" or not _DRIVER.exists() or not torch.cuda.is_available():
        return ()
    devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    reasons = [check_gpu(config, vocab_size, config.max_workers, device) for device in devices]
    return tuple(sorted({f"plain PyTorch instead of kernels: {reason}" for reason in reasons if reason}))
