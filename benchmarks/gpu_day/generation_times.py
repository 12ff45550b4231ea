"""Generation token by token: with and without CUDA graphs and the kernels for few rows.

The bytes of a step are those that it cannot do without: all weights once, keys and values of every lane, those of
distances once. Their share of the memory's bandwidth says how far a step is from the limit.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.timing import free_memory, side_by_side, wall_ms
from pretrain.inference import layer, session
from pretrain.inference.context import Context
from pretrain.inference.decoder import Decoder
from pretrain.inference.session import DecodingSession
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.plan.hardware import gpu_of_device

TABLE = "Generation, bf16"
_ROUNDS = 3
_PASSES_BEFORE = 4
"""Kernels are compiled and the pass is recorded in these."""
_GIB = 2**30


def run(day: Day) -> None:
    """Measure all lanes and contexts."""
    torch.manual_seed(0)
    model = TwoStreamTransformer(day.scale.config(0, dropout=False), day.scale.vocab_size)
    decoder = Decoder(model.to(day.device, torch.bfloat16), max(day.scale.contexts) + 512)
    bytes_per_s = _bandwidth(day)
    modes = [(True, True), (True, False), (False, True), (False, False)]
    for context in day.scale.contexts:
        for lanes in day.scale.generated_lanes:
            for graphs, kernels in modes if day.has_gpu else modes[2:]:
                setting = f"{lanes} lanes after {context} tokens, graphs: {graphs}, kernels: {kernels}"
                if day.has_time(2.0, setting):
                    _measure(day, decoder, lanes, context, graphs, kernels, bytes_per_s)


def _measure(
    day: Day, decoder: Decoder, lanes: int, context: int, graphs: bool, kernels: bool, bytes_per_s: float
) -> None:
    new_tokens = day.scale.new_tokens
    tokens_BT = torch.randint(day.scale.vocab_size, (lanes, context), device=day.device)
    with passes_by(graphs, kernels, day.device):
        one = DecodingSession(decoder, lanes, context + _PASSES_BEFORE + _ROUNDS * new_tokens + 1)
        one.encode(Context.of_text(tokens_BT))
        token_B, column = tokens_BT[:, 0], context
        for _ in range(_PASSES_BEFORE):
            token_B = one.write_and_predict(token_B, column).argmax(dim=-1)
            column += 1
        times_ms = []
        for _ in range(_ROUNDS if day.has_gpu else 1):
            columns = range(column, column + new_tokens)
            column += new_tokens

            def generate(columns: range = columns, first_B: torch.Tensor = token_B) -> None:
                token_B = first_B
                for one_column in columns:
                    token_B = one.write_and_predict(token_B, one_column).argmax(dim=-1)

            times_ms.append(wall_ms(generate, day.device) / new_tokens)
        keys = column
    # Not the median: a round may begin a new number of columns in use, whose pass is recorded in it.
    token_ms = min(times_ms)
    step_bytes = bytes_of_step(decoder, lanes, keys)
    day.add(
        TABLE,
        {
            "lanes": lanes,
            "context": context,
            "CUDA graphs": graphs,
            "few-row kernels": kernels,
            "ms per token": token_ms,
            "rounds ms": f"{min(times_ms):.4g} to {max(times_ms):.4g}",
            "tokens/s of all lanes": lanes / token_ms * 1e3,
            "MiB per step": step_bytes / 2**20,
            "of bandwidth": step_bytes / (token_ms * 1e-3) / bytes_per_s,
        },
    )
    free_memory(day.device)


def bytes_of_step(decoder: Decoder, lanes: int, keys: int) -> int:
    """Return the bytes that a step must read: weights, keys and values of `keys` columns, keys of distances."""
    config, element_bytes = decoder.model.config, decoder.layers[0].attention_dtype.itemsize
    inner_dim = config.num_heads * config.head_dim
    weights = sum(
        weight.numel()
        for name, weight in decoder.model.named_parameters()
        if "positions" not in name  # multiplied once, when a decoder is made
    )
    per_column = config.num_layers * inner_dim * element_bytes
    return weights * decoder.model.dtype.itemsize + (2 * lanes + 1) * keys * per_column


def _bandwidth(day: Day) -> float:
    """Return the bytes per second of a copy, and note the data sheet's."""
    size = 2**28 if day.has_gpu else 2**20
    source = torch.zeros(size, dtype=torch.float32, device=day.device)
    goal = torch.empty_like(source)
    times = side_by_side({"copy": lambda: goal.copy_(source)}, day, 0.5)
    found = 2 * 4 * size / (times["copy"].median_ms * 1e-3)
    row = {"of a copy, GiB/s": found / _GIB}
    if day.has_gpu and (gpu := gpu_of_device(torch.cuda.get_device_name())):
        row["data sheet, GiB/s"] = gpu.memory_tb_per_s * 1e12 / _GIB
    day.add("Bandwidth of the memory", row)
    return found


@contextmanager
def passes_by(graphs: bool, kernels: bool, device: torch.device) -> Iterator[None]:
    """Let sessions that begin within the block use CUDA graphs, kernels for few rows, or not; a CPU interprets them."""
    with ExitStack() as patches:
        if not graphs:
            patches.enter_context(patch.object(session, "can_record", lambda _device: False))
        if not kernels or device.type != "cuda":
            patches.enter_context(patch.object(layer, "runs_few_rows_kernels", lambda _rows: kernels))
        yield
