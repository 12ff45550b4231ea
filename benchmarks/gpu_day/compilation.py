"""Compilation ahead of all measurements, in as many processes as there are cores: the caches on disk keep the results.

Each task is a small piece of a later part, run once. What fails here fails again there, where it is reported.
"""

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.gpu_day import kernel_errors, kernel_times
from benchmarks.gpu_day.day import SCALES, Day
from benchmarks.gpu_day.problems import GAP_TOKENS
from benchmarks.gpu_day.training_step import OurStep
from benchmarks.gpu_day.warming import in_parallel
from pretrain.model.fused.gpu.self_check import Features, deviation

TABLE = "Tasks that compile"
Task = tuple[Callable[..., Any], tuple[Any, ...]]
_GAPS = (GAP_TOKENS, None)


def run(day: Day) -> None:
    """Run all tasks; without a GPU there is nothing to compile."""
    found = tasks(day)
    done = in_parallel(run_task, found, day.left_s()) if day.has_gpu else []
    day.add(TABLE, {"tasks": len(found), "done in time": sum(one is not None for one in done)})


def tasks(day: Day) -> list[Task]:
    """Return the tasks, the longest first."""
    dtypes = ("bfloat16", "float32")
    name = day.scale.name
    return [
        *((step, (name, dropout)) for dropout in (True, False)),
        *((check, (name, gap, dropout)) for gap in _GAPS for dropout in (0.0, 0.1)),
        *((kernel_times.warm, (name, *setting)) for setting in kernel_times.settings(day)),
        *((kernel_errors.warm, (name, case, dtype)) for case in range(3) for dtype in dtypes),
    ]


def run_task(function: Callable[..., Any], arguments: tuple[Any, ...]) -> bool:
    """Run a task, in a process of its own."""
    function(*arguments)
    return True


def check(scale_name: str, gap_tokens: int | None, dropout: float) -> None:
    """Make the check that a process makes before it relies on the kernels."""
    features = Features(torch.bfloat16, SCALES[scale_name].head_dim, gap_tokens, True, True, True, dropout)
    deviation(features, torch.device("cuda"))


def step(scale_name: str, dropout: bool) -> None:
    """Make steps of the first shape."""
    scale = SCALES[scale_name]
    one = OurStep(scale, scale.steps[0], torch.device("cuda"), dropout)
    for _ in range(2):
        one.step()
    torch.cuda.synchronize()
