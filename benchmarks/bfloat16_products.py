"""Time products of bfloat16 matrices on one core: PyTorch's, by way of float32, and products of float32 matrices.

    python -m benchmarks.bfloat16_products

In rounds, each measurement in its own process; prints median GFLOPS. If the processor has instructions for bfloat16,
permcode does not use the way through float32.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import torch

_ROUNDS = 3
_ROWS, _SIZES = 1024, (256, 512)
_MIN_S = 0.2


def measure(kind: str, size: int) -> float:
    """Return the GFLOPS of one kind of product, [1024, size] by [size, size]."""
    torch.set_num_threads(1)
    if kind == "through float32":
        from pretrain.model.fused.operators import load_operators

        if reason := load_operators():
            raise SystemExit(reason)
        torch.ops.permcode_attention.multiply_in_float32()
    dtype = torch.float32 if kind == "float32" else torch.bfloat16
    left, right = torch.randn(_ROWS, size).to(dtype), torch.randn(size, size).to(dtype)
    return 2 * _ROWS * size * size / _seconds(lambda: left @ right) / 1e9


def _seconds(call: Callable[[], object]) -> float:
    call()
    count, start_s = 0, time.perf_counter()
    while count == 0 or time.perf_counter() - start_s < _MIN_S:
        call()
        count += 1
    return (time.perf_counter() - start_s) / count


def main() -> None:
    if len(sys.argv) == 3:
        print(measure(sys.argv[1], int(sys.argv[2])))
        return
    for size in _SIZES:
        found: dict[str, list[float]] = {}
        for _ in range(_ROUNDS):
            for kind in ("PyTorch's bfloat16", "through float32", "float32"):
                command = [sys.executable, "-m", "benchmarks.bfloat16_products", kind, str(size)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                found.setdefault(kind, []).append(float(done.stdout))
        shown = ", ".join(f"{kind} {median(values):.3g}" for kind, values in found.items())
        print(f"{_ROWS} x {size} x {size}: {shown} GFLOPS")


if __name__ == "__main__":
    main()
