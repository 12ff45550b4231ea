"""The errors of the kernels beside those of plain operations, of the output and of all gradients."""

import torch
from torch import Tensor

from benchmarks.gpu_day.day import SCALES, Day, Scale
from benchmarks.gpu_day.problems import (
    DOCUMENTS,
    NAMES,
    Problem,
    by_kernels,
    by_plain,
    one_stream,
    two_streams,
)

BF16_AGAINST_PLAIN = 2.5
"""The kernels round the output to bfloat16 before the backward pass sums its products with the gradient."""
DOCUMENTS_AGAINST_PLAIN = 4.0
"""A document's score changes nothing for a row that sees one document: its gradient is the rounding of the output."""
FP32_LIMIT = 1e-4


def run(day: Day) -> None:
    """Compare both types with float64; raise at the end if the kernels are less exact than they should be."""
    too_large = []
    for case, problem in _cases(day.scale, day.device).items():
        if day.has_time(1.0, case):
            too_large += [f"{case}: {name}" for name in _compare(day, case, problem)]
    if too_large:
        raise AssertionError(f"kernels are less exact than they should be: {'; '.join(too_large)}")


def warm(scale_name: str, case: int, dtype_name: str) -> None:
    """Compile what a case needs for a type, in a process of its own; the compiler's cache keeps it."""
    problem = list(_cases(SCALES[scale_name], torch.device("cuda")).values())[case]
    problem.solve(by_kernels, getattr(torch, dtype_name))


def _cases(scale: Scale, device: torch.device) -> dict[str, Problem]:
    length, memory = scale.error_lengths
    lanes = 2 if device.type == "cuda" else 1
    heads, head_dim = scale.model["num_heads"], scale.model["head_dim"]
    return {
        f"left to right, L = {length}": one_stream(heads, lanes, length, head_dim, True, device),
        f"any order, L = {length}": one_stream(heads, lanes, length, head_dim, False, device),
        f"both streams, L = {length}, M = {memory}": two_streams(
            heads, lanes, length, memory, head_dim, device
        ),
    }


def _compare(day: Day, case: str, problem: Problem) -> list[str]:
    """Add a row for each result; return the names of those whose errors are too large."""
    exact = problem.solve(by_plain, torch.float64)
    kernel, plain = (problem.solve(each, torch.bfloat16) for each in (by_kernels, by_plain))
    kernel_32, plain_32 = (problem.solve(each, torch.float32) for each in (by_kernels, by_plain))
    too_large = []
    for number, name in enumerate(NAMES):
        reference = exact[number]
        if reference is None:
            continue
        errors = [relative_error(found[number], reference) for found in (kernel, plain, kernel_32, plain_32)]
        most = DOCUMENTS_AGAINST_PLAIN if name == DOCUMENTS else BF16_AGAINST_PLAIN
        is_fine = errors[0] <= most * errors[1] and errors[2] <= FP32_LIMIT
        row = {
            "case": case,
            "result": name if number == 0 else f"gradient of {name}",
            "kernels bf16": errors[0],
            "plain bf16": errors[1],
            "kernels / plain": errors[0] / max(errors[1], 1e-30),
            "kernels fp32": errors[2],
            "plain fp32": errors[3],
            "as exact as it should be": is_fine,
        }
        day.add("Errors relative to float64, ||found - exact|| / ||exact||", row)
        if not is_fine:
            too_large.append(name)
    return too_large


def relative_error(found: Tensor | None, exact: Tensor) -> float:
    """Return the norm of the difference as a share of that of the exact result."""
    assert found is not None
    return float((found.double() - exact).norm() / exact.norm())
