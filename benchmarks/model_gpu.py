"""Time a training step on a GPU: tokens per second and the share of the matrix-product peak.

    python -m benchmarks.model_gpu                            needs a GPU
    python -m benchmarks.model_gpu --device cpu --size tiny   shows that the program works, measures nothing of use

XLNet-base's shape (P = L/6, with and without a memory of 384 tokens), compared with Hugging Face's XLNet (under
autocast, because its bfloat16 weights fail) and GPT-2 (sdpa, both ways), at numbers of lanes that double until no model
fits. The peak is that of a large bfloat16 matrix product, measured here; the step's FLOPs come from
`pretrain/plan/flops.py`, forward and backward, without recomputation. `--compile` runs every model through
torch.compile.
"""

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from benchmarks.model_contenders import HFGPT2, Contender, HFXLNet, Ours, our_config
from benchmarks.model_machine import Timing, describe_machine, keep, paired_ratios, print_table, time_in_turn
from benchmarks.model_sizes import SIZES, Batch, Size
from pretrain.plan.flops import training_flops_per_step

STEPS_PER_ROUND = 5
BASELINE = "GPT-2 bfloat16"


def wait_for(device: str) -> None:
    """Wait until all work started on the device is done."""
    if device == "cuda":
        torch.cuda.synchronize()


def peak_flops_per_s(device: str, num_rounds: int = 20) -> float:
    """Return the FLOP/s of the fastest of several large square bfloat16 products, each a median over rounds."""
    best = 0.0
    for side in (4096, 8192, 16384) if device == "cuda" else (256, 512):
        left, right = (torch.randn(side, side, device=device).bfloat16() for _ in range(2))
        times_s = []
        for _ in range(num_rounds + 3):
            wait_for(device)
            started_s = time.perf_counter()
            left @ right
            wait_for(device)
            times_s.append(time.perf_counter() - started_s)
        best = max(best, 2 * side**3 / statistics.median(times_s[3:]))
    return best


def builders(size: Size, device: str) -> dict[str, Callable[[], Contender]]:
    """Return a builder of every contender at one number of lanes, by name."""
    alone = replace(size, memory_tokens=0)
    batch = Batch.random(size, size.segment_tokens // 6, seed=0, device=device)
    memory = f"M = {size.memory_tokens}"
    return {
        f"ours bfloat16, {memory}": lambda: Ours(size, "bfloat16", batch, device),
        "ours bfloat16, M = 0": lambda: Ours(alone, "bfloat16", batch, device),
        f"XLNet autocast, {memory}": lambda: HFXLNet(size, "autocast", batch, device),
        "XLNet autocast, M = 0": lambda: HFXLNet(alone, "autocast", batch, device),
        "GPT-2 autocast": lambda: HFGPT2(size, "autocast", batch, device),
        BASELINE: lambda: HFGPT2(size, "bfloat16", batch, device),
    }


def steps_of(contender: Contender, device: str) -> Callable[[], None]:
    """Return a call of STEPS_PER_ROUND steps, which the CPU may queue ahead of the GPU."""

    def work() -> None:
        for _ in range(STEPS_PER_ROUND):
            contender.step()
        wait_for(device)

    return work


def fitting(size: Size, device: str, compiled: bool, left_out: set[str]) -> dict[str, tuple[Contender, int]]:
    """Return the contenders that fit in memory, with the bytes each needs, weights included (0 on a CPU).

    The names of the others are added to `left_out`.
    """
    found: dict[str, tuple[Contender, int]] = {}
    for name, build in builders(size, device).items():
        if name in left_out:
            continue
        held_bytes = torch.cuda.memory_allocated() if device == "cuda" else 0
        try:
            contender = build()
            if compiled:
                contender.model.compile()
            contender.step()
            wait_for(device)
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            contender.step()
            wait_for(device)
            peak_bytes = torch.cuda.max_memory_allocated() if device == "cuda" else 0
            found[name] = contender, peak_bytes - held_bytes
        except torch.OutOfMemoryError:
            left_out.add(name)
        # Otherwise a contender that did not fit would keep its memory.
        contender = None  # type: ignore[assignment]
        if device == "cuda":
            gc.collect()
            torch.cuda.empty_cache()
    return found


def measure(size: Size, found: Mapping[str, tuple[Contender, int]], device: str, peak: float) -> None:
    """Measure the contenders that fit at this number of lanes and print their table."""
    work = {name: steps_of(contender, device) for name, (contender, _) in found.items()}
    timings = time_in_turn(work, num_rounds=10 if device == "cuda" else 2)
    rows = []
    for name, timing in timings.items():
        step_s = timing.median_s / STEPS_PER_ROUND
        share = our_share(size, name, step_s, peak)
        causal = timings.get(BASELINE)
        faster = None if causal is None else paired_ratios(timing, causal)[1]
        rows.append(row_of(size, name, timing, found[name][1], share, faster))
    head = ["contender", "tokens/s", "of causal", "of peak (MFU)", "peak GiB"]
    print_table(f"{size.name}, {size.lanes} lanes of {size.segment_tokens} tokens", head, rows)


def our_share(size: Size, name: str, step_s: float, peak: float) -> float | None:
    """Return our model's share of the peak; None for peers, whose FLOPs the formula does not cover."""
    if not name.startswith("ours"):
        return None
    at = replace(size, memory_tokens=0) if name.endswith("M = 0") else size
    flops = training_flops_per_step(
        our_config(at), at.lanes, at.segment_tokens, at.segment_tokens // 6, at.vocab_size
    )
    return flops / step_s / peak


def row_of(
    size: Size, name: str, timing: Timing, held_bytes: int, share: float | None, faster: float | None
) -> list[str]:
    """Return the table's row of a contender and write it to the results file."""
    tokens_per_s = size.num_tokens * STEPS_PER_ROUND / timing.median_s
    row = {"size": size.name, "lanes": size.lanes, "contender": name, "tokens_per_s": tokens_per_s}
    keep("gpu", row | {"wall_s": timing.wall_s, "mfu": share, "of_causal": faster, "peak_bytes": held_bytes})
    cells = ["" if value is None else f"{100 * value:.0f}%" for value in (faster, share)]
    return [name, f"{tokens_per_s:.0f}", *cells, f"{held_bytes / 2**30:.1f}" if held_bytes else ""]


def main() -> int:
    """Measure the matrix-product peak, then steps at more and more lanes; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", choices=sorted(SIZES), default="base")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--max-lanes", type=int, default=1024)
    arguments = parser.parse_args()
    device = arguments.device
    if device == "cuda" and not torch.cuda.is_available():
        print("needs a GPU that PyTorch can use: run it where nvidia-smi shows one", file=sys.stderr)
        return 2
    name = torch.cuda.get_device_name() if device == "cuda" else "no GPU"
    peak = peak_flops_per_s(device)
    print(f"Training step: {name}, {peak / 1e12:.1f} TFLOP/s in bf16 matrix products; {describe_machine()}")
    size, left_out = SIZES[arguments.size], set[str]()
    max_lanes = arguments.max_lanes if device == "cuda" else size.lanes
    while size.lanes <= max_lanes:
        found = fitting(size, device, arguments.compile, left_out)
        if not found:
            break
        measure(size, found, device, peak)
        size = replace(size, lanes=2 * size.lanes)
        del found
    return 0


if __name__ == "__main__":
    sys.exit(main())
