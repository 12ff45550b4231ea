"""The memory of a GPU in training for every ZeRO stage (Rajbhandari et al. 2020, section 5, as in DeepSpeed).

Assumed, beside what `trace` finds: a buffer of 5e8 elements for gradients under way, more than the engine's buckets; an
optimizer step that works in a float32 copy of its gradients, one temporary of Adam and the gradients laid flat; ZeRO 3
that gathers the embedding and one layer at a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from pretrain.config import PretrainConfig
from pretrain.plan.parameters import count_parameters

if TYPE_CHECKING:
    from pretrain.plan.trace import PassShape

GIB = 1 << 30
ZERO_STAGES = (0, 1, 2, 3)
RESERVE_BYTES = 2 * GIB
"""A reserve for the CUDA context, buffers of NCCL and cuBLAS, and fragmentation."""

_FP32_BYTES = 4
_BUFFER_ELEMENTS = 500_000_000
_INT64_BYTES = 8


@dataclass(frozen=True)
class GpuMemory:
    """Bytes on one GPU. The last two are used in turn, all others all the time."""

    weights: int
    gradients: int
    masters_and_moments: int
    segment_memory: int
    reserve: int
    passes: int
    """Forward and backward pass: activations, logits, temporaries, the buffer of gradients in transfer."""
    optimizer_step: int

    @property
    def total(self) -> int:
        """The peak of the bytes in use."""
        held = self.weights + self.gradients + self.masters_and_moments + self.segment_memory + self.reserve
        return held + max(self.passes, self.optimizer_step)


def gpu_memory(config: PretrainConfig, vocab_size: int, zero_stage: int) -> GpuMemory:
    """Return the memory of each of `config.max_workers` GPUs for a ZeRO stage; all else is from the config.

    What is offloaded, where the stage can, lies in the host's memory. Gradients are counted here all the same.
    """
    parameters = count_parameters(config.model, vocab_size).total
    element_bytes = _element_bytes(config)
    share = -(-parameters // config.max_workers)
    updated = share if zero_stage else parameters
    if config.offload_optimizer and zero_stage:
        updated = 0
    kept = 0 if config.offload_parameters else share
    # Stage 3 gathers the embedding, the output and one layer at a time.
    without_layers = count_parameters(config.model.model_copy(update={"num_layers": 0}), vocab_size).total
    gathered = without_layers + (parameters - without_layers) // config.model.num_layers
    weights = min(parameters, kept + gathered) if zero_stage == 3 else parameters
    # Stage 1 reduces when all gradients are complete, and then holds its share of the sums besides them.
    gradients = {0: parameters, 1: parameters + share}.get(zero_stage, share)
    under_way = _BUFFER_ELEMENTS if zero_stage else min(_BUFFER_ELEMENTS, parameters)
    num_copies = 3 if zero_stage or element_bytes < _FP32_BYTES else 2
    return GpuMemory(
        weights=weights * element_bytes,
        gradients=gradients * element_bytes,
        masters_and_moments=updated * num_copies * _FP32_BYTES,
        segment_memory=_segment_memory(config),
        reserve=RESERVE_BYTES,
        passes=passes_bytes(config, vocab_size) + under_way * element_bytes,
        optimizer_step=updated * (2 * _FP32_BYTES + element_bytes),
    )


def passes_bytes(config: PretrainConfig, vocab_size: int, with_kernels: bool = True) -> int:
    """Return the peak of one micro-batch's forward and backward pass, on top of weights, gradients and memory.

    Without kernels, attention and loss are plain operations.
    """
    from pretrain.plan.trace import traced

    return traced(pass_shape(config, vocab_size, with_kernels)).peak_bytes


def pass_shape(config: PretrainConfig, vocab_size: int, with_kernels: bool = True) -> "PassShape":
    """Return the shape of one micro-batch's pass, for `traced`."""
    import torch

    from pretrain.plan.trace import PassShape

    return PassShape(
        config.model,
        vocab_size,
        config.micro_batch_lanes,
        config.segment_tokens,
        config.objective.extent(config.segment_tokens),
        config.objective.num_targets(config.segment_tokens),
        torch.bfloat16 if config.precision == "bf16" else torch.float32,
        config.recompute,
        with_kernels,
    )


def _element_bytes(config: PretrainConfig) -> int:
    return 2 if config.precision == "bf16" else _FP32_BYTES


def _segment_memory(config: PretrainConfig) -> int:
    """Return the segment memory before the step and of all micro-batches but the last, which the passes include."""
    model = config.model
    per_lane = model.memory_tokens * (
        model.num_layers * model.model_dim * _element_bytes(config) + 2 * _INT64_BYTES
    )
    lanes = config.lanes // config.max_workers
    return per_lane * (2 * lanes - config.micro_batch_lanes)


_FAIR_SHARE = 4
"""The least share of a micro-batch that still fills a GPU; below it recomputing activations costs less."""


@dataclass(frozen=True)
class Change:
    """Changes of the pretraining config with which a run fits, and the memory that it then needs."""

    values: dict[str, Any]
    needed_bytes: int


def needed_bytes(config: PretrainConfig, vocab_size: int) -> int:
    """Return the bytes that the run needs on each GPU."""
    return gpu_memory(config, vocab_size, config.zero_stage).total


def misfit(config: PretrainConfig, vocab_size: int, available_bytes: int, gpu_name: str) -> str | None:
    """Return an error text, with the smallest change that fits, if the run needs more than a GPU has; else None."""
    needed = needed_bytes(config, vocab_size)
    if needed <= available_bytes:
        return None
    change = smallest_change(config, vocab_size, available_bytes)
    if change is None:
        remedy = (
            "neither smaller micro batches nor recomputing help; use more GPUs, larger ones or fewer lanes"
        )
    else:
        settings = " ".join(f"pretrain.{key}={str(value).lower()}" for key, value in change.values.items())
        remedy = f"it fits with {settings} ({change.needed_bytes / GIB:.1f} GiB)"
    return (
        f"the run needs {needed / GIB:.1f} GiB on each GPU, {(needed - available_bytes) / GIB:.1f} more than the "
        f"{available_bytes / GIB:.3g} of {gpu_name}: {remedy}"
    )


def smallest_change(config: PretrainConfig, vocab_size: int, available_bytes: int) -> Change | None:
    """Return the first change that fits, from free ones to those that cost time; None if none fits this GPU.

    Only changes that the config takes count: a deterministic run, say, does not take every micro batch.
    """
    for values in _changes(config):
        try:
            changed = PretrainConfig.model_validate({**config.model_dump(), **values})
        except ValidationError:
            continue
        if (needed := needed_bytes(changed, vocab_size)) <= available_bytes:
            return Change(values, needed)
    return None


def _changes(config: PretrainConfig) -> Iterator[dict[str, Any]]:
    stage: dict[str, Any] = {"zero_stage": 2} if config.zero_stage < 2 and config.max_workers > 1 else {}
    if stage:
        yield stage
    per_gpu = config.lanes // config.max_workers
    smaller = [lanes for lanes in range(config.micro_batch_lanes - 1, 0, -1) if per_gpu % lanes == 0]
    for lanes in smaller:
        if lanes * _FAIR_SHARE >= config.micro_batch_lanes:
            yield {**stage, "micro_batch_lanes": lanes}
    again: dict[str, Any] = {}
    for recompute in {"none": ("attention", "layers"), "attention": ("layers",)}.get(config.recompute, ()):
        again = {"recompute": recompute}
        yield {**stage, **again}
    for lanes in smaller:
        yield {**stage, **again, "micro_batch_lanes": lanes}
