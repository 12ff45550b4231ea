"""Where the time of a training step goes: the operations with the most time on the device, and shares of parts."""

import re
from collections.abc import Mapping

from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.timing import wait_for, wall_ms
from benchmarks.gpu_day.training_step import OurStep, attention_by

SHARES_TABLE, TOP_TABLE = "Shares of a step's time", "Operations with the most time"
_STEPS = 3
_TOP = 15
PARTS: Mapping[str, str] = {
    "attention": r"attend|rows_backward|keys_backward|distances_backward|find_runs|mask_tables",
    "loss, without its products": r"logit_gradients|output_loss|nll_loss|log_softmax",
    "products": r"gemm|cutlass|cublas|nvjet|xmma|gemv|splitk|::mm$|::bmm$|::addmm$|mkldnn",
    "optimizer": r"adam|multi_tensor|foreach",
}
"""A part has the operations whose names contain one of these; the first that matches counts."""


def run(day: Day) -> None:
    """Profile steps of the first shape, eager."""
    shape = day.scale.steps[0]
    with attention_by(kernels=True, device=day.device):
        one = OurStep(day.scale, shape, day.device, dropout=True)
        num_steps = _STEPS if day.has_gpu else 1
        for _ in range(num_steps):
            one.step()
        step_ms = wall_ms(lambda: [one.step() for _ in range(num_steps)], day.device) / num_steps
        activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if day.has_gpu else [])
        with profile(activities=activities) as profiler:
            for _ in range(num_steps):
                one.step()
            wait_for(day.device)
    times_ms = _by_operation(profiler, day.has_gpu)
    busy_ms = sum(times_ms.values())
    shares = dict.fromkeys([*PARTS, "rest"], 0.0)
    for name, ms in times_ms.items():
        shares[part_of(name)] += ms
    for part, ms in shares.items():
        day.add(SHARES_TABLE, {"part": part, "ms": ms / num_steps, "share of busy time": ms / busy_ms})
    day.add(SHARES_TABLE, {"part": "busy", "ms": busy_ms / num_steps, "share of busy time": 1.0})
    day.add(SHARES_TABLE, {"part": "a step on the clock, not profiled", "ms": step_ms})
    for name, ms in sorted(times_ms.items(), key=lambda item: -item[1])[:_TOP]:
        row = {"operation": name[:90], "ms": ms / num_steps, "share": ms / busy_ms, "part": part_of(name)}
        day.add(TOP_TABLE, row)


def part_of(name: str) -> str:
    """Return the part that an operation belongs to, by its name."""
    return next((part for part, words in PARTS.items() if re.search(words, name, re.IGNORECASE)), "rest")


def _by_operation(profiler: profile, has_gpu: bool) -> dict[str, float]:
    """Return the milliseconds of each kernel of the GPU; of each operation without what it calls on a CPU."""
    found: dict[str, float] = {}
    for event in profiler.key_averages():
        if has_gpu:
            is_kernel = event.device_type.name == "CUDA"
            time_us = event.self_device_time_total if is_kernel else 0.0
        else:
            time_us = event.self_cpu_time_total
        if time_us > 0:
            found[event.key] = found.get(event.key, 0.0) + time_us / 1e3
    return found
