"""The predicted time of a training step on one GPU, from the operations that the model makes: no GPU has confirmed it.

Each operation takes the longer of its matrix products at a share of the peak and its bytes at a share of the memory's
bandwidth; both shares were measured on an H200 (790 of 989 TFLOP/s, 4.3 of 4.8 TB/s). Launches, the network and
`torch.compile`, which saves passes over memory, are not in it.

Letters: N heads, B lanes, Q rows, K keys, X = B P, R distances, H head dim, D model, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pretrain.config import PretrainConfig
from pretrain.model.fused.gpu.tile_sizes import tiles_for
from pretrain.plan.attention_time import AttentionShape, KernelWork, all_kernels, kernel_work
from pretrain.plan.gpu_memory import pass_shape
from pretrain.plan.hardware import Gpu, flops_per_token
from pretrain.plan.parameters import count_parameters
from pretrain.plan.trace import Operation, TensorShape, traced

PRODUCT_SHARE, BANDWIDTH_SHARE = 0.80, 0.90
_OPTIMIZER_BYTES_PER_PARAMETER = 30
"""float32 masters and two moments read and written, a gradient read, a bfloat16 weight written."""
_LOSS_PASSES = 4
"""Over the logits: written, read twice, written."""

Attention = Literal["kernel", "sdpa", "plain"]
"""The kernels; PyTorch's SDPA with the position scores as a mask; plain operations."""


@dataclass(frozen=True)
class StepTime:
    """The predicted seconds of one GPU's step, by part."""

    products_s: float
    attention_s: float
    loss_s: float
    others_s: float
    """Operations that move data: norms, residuals, activations, copies."""
    optimizer_s: float
    tokens: int
    """Of one GPU in a step."""
    flops: float
    """Of the model, without recomputation."""

    @property
    def seconds(self) -> float:
        """The time of the step."""
        return self.products_s + self.attention_s + self.loss_s + self.others_s + self.optimizer_s

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second and GPU."""
        return self.tokens / self.seconds

    def utilisation(self, gpu: Gpu, precision: str) -> float:
        """Return the share of the GPU's peak (MFU)."""
        return self.flops / self.seconds / gpu.peak_flops(precision)


def predicted_step(
    config: PretrainConfig, vocab_size: int, gpu: Gpu, attention: Attention = "kernel"
) -> StepTime:
    """Predict a step of one of the run's GPUs."""
    shape = pass_shape(config, vocab_size, with_kernels=attention != "plain")
    lanes = config.lanes // config.max_workers
    passes = lanes // config.micro_batch_lanes
    rate = _Rates(gpu, config.precision)
    parts = {"products": 0.0, "attention": 0.0, "loss": 0.0, "others": 0.0}
    for operation in traced(shape).operations:
        name, seconds = _part_of(operation, attention, rate)
        parts[name] += passes * seconds
    parameters = count_parameters(config.model, vocab_size).total
    updated = parameters / config.max_workers if config.zero_stage else parameters
    tokens = lanes * config.segment_tokens
    return StepTime(
        parts["products"],
        parts["attention"],
        parts["loss"],
        parts["others"],
        rate.moving_s(updated * _OPTIMIZER_BYTES_PER_PARAMETER),
        tokens,
        flops_per_token(config, vocab_size) * tokens,
    )


@dataclass(frozen=True)
class _Rates:
    gpu: Gpu
    precision: str

    def multiplying_s(self, flops: float) -> float:
        return flops / (PRODUCT_SHARE * self.gpu.peak_flops(self.precision))

    def moving_s(self, num_bytes: float) -> float:
        return num_bytes / (BANDWIDTH_SHARE * self.gpu.memory_tb_per_s * 1e12)

    def longer_s(self, flops: float, num_bytes: float) -> float:
        return max(self.multiplying_s(flops), self.moving_s(num_bytes))


def _part_of(operation: Operation, attention: Attention, rate: _Rates) -> tuple[str, float]:
    match operation.name:
        case "attend" | "attend_backward" as name:
            is_backward = name == "attend_backward"
            inputs = operation.arguments[4:] if is_backward else operation.arguments
            shape = attention_shape(inputs)
            if attention == "sdpa":
                return "attention", _sdpa_s(shape, inputs[4].shape[2], is_backward, rate)
            works = [work for work in works_of(inputs, rate.gpu) if (work.kernel != "forward") == is_backward]
            cycles = sum(work.cycles for work in works)
            computing_s = cycles / (rate.gpu.multiprocessors * rate.gpu.clock_ghz * 1e9)
            return "attention", max(computing_s, rate.moving_s(operation.moved_bytes))
        case "output_loss":
            rows_XD, weight_VD = operation.arguments[:2]
            (rows, dim), vocab = rows_XD.shape, weight_VD.shape[0]
            moved = _LOSS_PASSES * rows * vocab * rows_XD.dtype.itemsize + operation.moved_bytes
            return "loss", rate.multiplying_s(6 * rows * dim * vocab) + rate.moving_s(moved)
        case _ if operation.flops:
            return "products", rate.longer_s(operation.flops, operation.moved_bytes)
        case _:
            return "others", rate.moving_s(operation.moved_bytes)


def attention_shape(inputs: Sequence[Any]) -> AttentionShape:
    """Return the shape of a call of `torch.ops.permcode_gpu.attend`, by its arguments."""
    query_NBQH: TensorShape = inputs[0]
    distance_NRH, num_columns = inputs[6], inputs[8]
    heads, lanes, rows, head_dim = query_NBQH.shape
    distances = 0 if distance_NRH is None else distance_NRH.shape[1]
    type_name: Literal["bf16", "fp32"] = "bf16" if query_NBQH.dtype.itemsize == 2 else "fp32"
    return AttentionShape(heads, lanes, rows, num_columns, distances, head_dim, type_name)


def works_of(inputs: Sequence[Any], gpu: Gpu) -> list[KernelWork]:
    """Return the work of all kernels of a call, forward and backward."""
    shape, gap_tokens = attention_shape(inputs), inputs[11]
    tiles = tiles_for(
        gpu.architecture,
        inputs[0].dtype,
        shape.head_dim,
        None if gap_tokens < 0 else gap_tokens,
        shape.distances > 0,
    )
    assert tiles is not None
    return [kernel_work(kernel, shape, tiles[kernel], gpu.architecture) for kernel in all_kernels(shape)]


def _sdpa_s(shape: AttentionShape, keys: int, is_backward: bool, rate: _Rates) -> float:
    """Return the time of SDPA with position scores as a mask: products by distance, the shift, the mask's passes."""
    element_bytes = 2 if shape.type_name == "bf16" else 4
    rows = shape.heads * shape.lanes * shape.rows
    by_distance, pairs = rows * shape.distances, rows * keys
    product, shift = 2 * by_distance * shape.head_dim, by_distance + pairs
    if not is_backward:
        # The shift and the visibility are written as the mask, which SDPA reads.
        moved = (by_distance + shift + 3 * pairs) * element_bytes
        return rate.longer_s(product, by_distance * element_bytes) + rate.longer_s(
            4 * pairs * shape.head_dim, moved
        )
    moved = (shift + 4 * pairs) * element_bytes
    return rate.longer_s(2 * product, 2 * by_distance * element_bytes) + rate.longer_s(
        10 * pairs * shape.head_dim, moved
    )
