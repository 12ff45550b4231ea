"""Training steps of the recipe `base` beside a causal model of the same size, and peers if they are installed.

A step draws orders and has forward and backward pass, clipping and the optimizer; peers have no optimizer in theirs and
are shown beside our step without one.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch

from benchmarks.gpu_day.causal_model import training_flops
from benchmarks.gpu_day.day import Day, StepShape
from benchmarks.gpu_day.timing import Times, free_memory, peak_of, side_by_side, wait_for, wall_ms
from benchmarks.gpu_day.training_step import CausalStep, OurStep, attention_by
from pretrain.plan.flops import training_flops_per_step
from pretrain.plan.hardware import gpu_of_device

TABLE = "Training step, bf16"
COMPILED_TABLE = "Training step with torch.compile, bf16"
PEERS_TABLE = "Forward and backward pass beside peers"
OURS, OURS_DROPOUT, CAUSAL, CAUSAL_DROPOUT = "ours", "ours, the recipe's dropout", "causal", "causal, dropout"
_STEPS = 3
"""Steps in a round, which the host may launch ahead."""
_WARM_UP_STEPS = 3
_SECONDS_EACH = 4.0
_LEAST_COMPILE_S = 25.0


def run(day: Day) -> None:
    """Measure without torch.compile."""
    peak_tflops = _peaks(day)
    for shape in day.scale.steps:
        if day.has_time(_SECONDS_EACH + 4, f"a step of {shape}"):
            _measure(day, shape, TABLE, peak_tflops, compiled=False)
    if find_spec("transformers") is None:
        day.note("XLNet and GPT-2 of Hugging Face are left out: transformers is not installed")
    elif day.has_time(10.0, "peers"):
        _measure_peers(day)


def run_compiled(day: Day) -> None:
    """Measure with torch.compile, while time is left."""
    peak_tflops = _peaks(day)
    for shape in day.scale.steps:
        if day.has_time(_LEAST_COMPILE_S if day.has_gpu else 0.0, f"a compiled step of {shape}"):
            _measure(day, shape, COMPILED_TABLE, peak_tflops, compiled=True)
        if not day.has_gpu:
            break


def _peaks(day: Day) -> dict[str, float]:
    """Return the TFLOP/s of the data sheet and of the fastest of some large products."""
    found: dict[str, float] = {}
    if day.has_gpu and (gpu := gpu_of_device(torch.cuda.get_device_name())):
        found["data sheet"] = gpu.peak_bf16_tflops
    for side in (8192, 16384) if day.has_gpu else (128,):
        left, right = (torch.randn(side, side, device=day.device).bfloat16() for _ in range(2))
        times = side_by_side({"product": partial(torch.mm, left, right)}, day, 0.5)
        tflops = 2 * side**3 / times["product"].median_ms / 1e9
        found["measured"] = max(found.get("measured", 0.0), tflops)
    day.add("Peak of matrix products, bf16", dict(found))
    free_memory(day.device)
    return found


def _measure(
    day: Day, shape: StepShape, table: str, peak_tflops: Mapping[str, float], compiled: bool
) -> None:
    makers: dict[str, Callable[[], Any]] = {
        OURS: lambda: OurStep(day.scale, shape, day.device, dropout=False),
        CAUSAL: lambda: CausalStep(day.scale, shape, day.device, dropout=False),
    }
    if not compiled:
        makers[OURS_DROPOUT] = lambda: OurStep(day.scale, shape, day.device, dropout=True)
        makers[CAUSAL_DROPOUT] = lambda: CausalStep(day.scale, shape, day.device, dropout=True)
    if compiled:
        torch._dynamo.reset()  # otherwise the next shape would be compiled for any shape
    with attention_by(kernels=True, device=day.device):
        steps, held = {}, {}
        for name, make in makers.items():
            one = make()
            if compiled:
                one.model.compile(backend="inductor" if day.has_gpu else "aot_eager")
            losses = [float(one.step()) for _ in range(_WARM_UP_STEPS if day.has_gpu else 1)]
            if not all(map(math.isfinite, losses)):
                raise AssertionError(f"{name}: losses are {losses}")
            with peak_of(day.device) as peak:
                one.step()
            steps[name], held[name] = one, peak.num_bytes
        num_steps = _STEPS if day.has_gpu else 1
        rounds = {name: _rounds(one, num_steps) for name, one in steps.items()}
        times = side_by_side(rounds, day, _SECONDS_EACH, timer=wall_ms)
    for name, one in steps.items():
        day.add(table, _row(day, shape, name, one, times, held[name], peak_tflops))
    steps.clear()
    rounds.clear()
    free_memory(day.device)


def _rounds(one: Any, num_steps: int) -> Callable[[], None]:
    def work() -> None:
        for _ in range(num_steps):
            one.step()

    return work


def _row(
    day: Day,
    shape: StepShape,
    name: str,
    one: Any,
    times: Mapping[str, Times],
    held_bytes: int,
    peak_tflops: Mapping[str, float],
) -> dict[str, Any]:
    step_ms = times[name].median_ms / (_STEPS if day.has_gpu else 1)
    tokens = shape.lanes * shape.segment_tokens
    flops = step_flops(day, shape, one)
    causal = times[CAUSAL_DROPOUT if name in (OURS_DROPOUT, CAUSAL_DROPOUT) else CAUSAL]
    shares = {
        f"MFU, {kind} peak": flops / (step_ms * 1e-3) / (tflops * 1e12)
        for kind, tflops in peak_tflops.items()
    }
    return {
        "segments": str(shape),
        "lanes": shape.lanes,
        "model": name,
        "step ms": step_ms,
        "rounds ms": times[name].spread,
        "tokens/s": tokens / (step_ms * 1e-3),
        "of causal tokens/s": causal.median_ms / times[name].median_ms,
        **shares,
        "GFLOP": flops / 1e9,
        "peak GiB beside weights": held_bytes / 2**30,
    }


def step_flops(day: Day, shape: StepShape, one: Any) -> int:
    """Return the FLOPs of a step, nothing counted twice."""
    if isinstance(one, CausalStep):
        return training_flops(one.config, day.scale.vocab_size, shape.lanes, shape.segment_tokens)
    return training_flops_per_step(
        one.config,
        shape.lanes,
        shape.segment_tokens,
        one.objective.num_targets(shape.segment_tokens),
        day.scale.vocab_size,
        extent_tokens=one.objective.extent(shape.segment_tokens),
    )


def _measure_peers(day: Day) -> None:
    """Compare passes without optimizer with Hugging Face's XLNet under autocast and GPT-2, at L = 512."""
    from benchmarks.model_contenders import HFGPT2, HFXLNet, Ours
    from benchmarks.model_sizes import SIZES, Batch

    size = SIZES[day.scale.name]
    batch = Batch.random(size, size.segment_tokens // 6, seed=0, device=day.device_name)
    with attention_by(kernels=day.has_gpu, device=day.device):
        contenders = {
            "ours": Ours(size, "bfloat16", batch, day.device_name),
            "XLNet, autocast": HFXLNet(size, "autocast", batch, day.device_name),
            "GPT-2": HFGPT2(size, "bfloat16", batch, day.device_name),
        }
        times = side_by_side({name: one.step for name, one in contenders.items()}, day, 4.0, timer=wall_ms)
    for name, timing in times.items():
        row = {
            "segments": f"L = {size.segment_tokens}, M = {size.memory_tokens}, P = L/6",
            "model": name,
            "pass ms": timing.median_ms,
            "tokens/s": size.num_tokens / (timing.median_ms * 1e-3),
            "ours is faster by": timing.median_ms / times["ours"].median_ms,
        }
        day.add(PEERS_TABLE, row)
    wait_for(day.device)
