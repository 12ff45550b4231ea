"""Times and memory of one attention over L, forward and with its backward pass, beside what else PyTorch has for it.

FlexAttention and SDPA get the same problem: position scores, their gradients, the same visibility. Their block mask and
dense mask are made before, as the kernels' tables are: a training step makes them once for all layers. FlashAttention
without positions, from left to right, is the limit of what is possible.
"""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.gpu_day.day import SCALES, Day
from benchmarks.gpu_day.problems import (
    Attention,
    Problem,
    by_causal_flash,
    by_flex,
    by_kernels,
    by_sdpa_with_mask,
    one_stream,
)
from benchmarks.gpu_day.timing import (
    EXPONENT,
    Work,
    device_ms,
    free_memory,
    growth_exponent,
    peak_of,
    side_by_side,
)
from pretrain.model.attention_scores import Distances

KERNELS, FLEX, SDPA, FLASH = "kernels", "FlexAttention", "SDPA with a mask", "causal FlashAttention"
TABLE = "One attention, bf16"
GROWTH_TABLE = "Growth of the peak with L, one lane, left to right"
_SECONDS_EACH = 1.5


def run(day: Day) -> None:
    """Measure the lengths in the order of their importance."""
    for length, is_causal in settings(day):
        order = "left to right" if is_causal else "any order"
        if day.has_time(2 * _SECONDS_EACH, f"L = {length}, {order}"):
            _measure(day, length, is_causal, order)
    if day.has_time(1.0, "growth of the peak"):
        _measure_growth(day)


def settings(day: Day) -> list[tuple[int, bool]]:
    """Return all L, and whether the order is from left to right, the most important ones first."""
    first, *others = day.scale.kernel_lengths
    orders = (True, False)
    return [(first, one) for one in orders] + [(length, one) for one in orders for length in others]


def _measure_growth(day: Day) -> None:
    """Measure the peak of one lane at all lengths."""
    attentions: dict[str, Attention] = {KERNELS: by_kernels, SDPA: by_sdpa_with_mask}
    for name, attention in attentions.items():
        peaks: dict[int, float] = {}
        for length in sorted(day.scale.kernel_lengths):
            problem = _problem(day.scale.name, length, True, day.device, lanes=1).to(torch.bfloat16)
            work = _both(problem, attention)
            try:
                work()
                with peak_of(day.device) as peak:
                    work()
            except torch.OutOfMemoryError:
                day.note(f"{name}, one lane of {length}: does not fit")
                break
            peaks[length] = peak.num_bytes
            del problem, work
            free_memory(day.device)
        row: dict[str, Any] = {"attention": name}
        row |= {f"peak MiB, L = {length}": held / 2**20 for length, held in peaks.items()}
        if len(peaks) > 1:
            row[EXPONENT] = growth_exponent(list(peaks), list(peaks.values()))
        day.add(GROWTH_TABLE, row)


def warm(scale_name: str, length: int, is_causal: bool) -> None:
    """Compile what a setting needs, in a process of its own; the compilers' caches keep it."""
    problem = _problem(scale_name, length, is_causal, torch.device("cuda"))
    for attention in (by_kernels, by_flex(problem.mask, is_causal)):
        problem.solve(attention, torch.bfloat16)
        with torch.no_grad():
            problem.mixed(attention)


def _problem(
    scale_name: str, length: int, is_causal: bool, device: torch.device, lanes: int | None = None
) -> Problem:
    scale = SCALES[scale_name]
    lanes = lanes or max(1, scale.kernel_tokens // length)
    heads, head_dim = scale.model["num_heads"], scale.model["head_dim"]
    return one_stream(heads, lanes, length, head_dim, is_causal, device)


def _measure(day: Day, length: int, is_causal: bool, order: str) -> None:
    problem = _problem(day.scale.name, length, is_causal, day.device).to(torch.bfloat16)
    makers: dict[str, Callable[[], Attention]] = {
        KERNELS: lambda: by_kernels,
        FLEX: lambda: by_flex(problem.mask, is_causal),
        SDPA: lambda: by_sdpa_with_mask,
    }
    if is_causal:
        makers[FLASH] = lambda: by_causal_flash
    forward: dict[str, Work] = {}
    both: dict[str, Work] = {}
    held: dict[str, int] = {}
    for name, make in makers.items():
        try:
            attention = make()
            forward[name], both[name] = _forward(problem, attention), _both(problem, attention)
            both[name]()  # compiles, and makes the tables
            with peak_of(day.device) as peak:
                both[name]()
            held[name] = peak.num_bytes
        except Exception as error:
            if name == KERNELS:
                raise
            forward.pop(name, None), both.pop(name, None)
            message = str(error).splitlines()[0] if str(error) else ""
            day.note(f"{name} at L = {length}, {order}: {type(error).__name__}: {message}")
        free_memory(day.device)
    forward_times = side_by_side(forward, day, _SECONDS_EACH / 3)
    times = side_by_side(both, day, 2 * _SECONDS_EACH / 3)
    for name, of_both in times.items():
        ours = times[KERNELS].median_ms
        row = {
            "L = K": length,
            "order": order,
            "lanes": max(1, day.scale.kernel_tokens // length),
            "attention": name,
            "forward ms": forward_times[name].median_ms,
            "with backward ms": of_both.median_ms,
            "rounds ms": of_both.spread,
            "kernels are faster by": None if name == KERNELS else of_both.median_ms / ours,
            "peak MiB": held[name] / 2**20,
        }
        if name == KERNELS:
            row["tables and forward ms"] = device_ms(lambda: _make_tables(problem), day.device, 0.01)
        day.add(TABLE, row)
    forward.clear()
    both.clear()
    free_memory(day.device)


def _forward(problem: Problem, attention: Attention) -> Work:
    def work() -> None:
        with torch.no_grad():
            problem.mixed(attention)

    return work


def _both(problem: Problem, attention: Attention) -> Work:
    wanted = [x for x in problem.inputs if x is not None]

    def work() -> None:
        mixed = problem.mixed(attention)
        torch.autograd.grad(mixed, wanted, problem.gradient_NBQH, allow_unused=True)

    return work


def _make_tables(problem: Problem) -> None:
    """Make the mask's tables anew, and run the forward kernel, which needs them."""
    problem.mask.derived.clear()
    *_, key, value, table = problem.inputs
    assert key is not None
    assert value is not None
    with torch.no_grad():
        by_kernels(problem.queries(), key, value, Distances(table, None), problem.mask)
