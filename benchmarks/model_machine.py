"""Shared code of the model's benchmarks: one environment for all contenders, interleaved rounds, tables and results."""

import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESULTS = Path("runs/bench-model")
NUM_THREADS = 2

# By default glibc returns large blocks to the kernel and allocates them again at every step, which slows a different
# contender in each run.
STEADY_HEAP = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "MALLOC_TOP_PAD_": str(1 << 28),
}
# Every tensor gets its own mapping, so a process holds only live tensors and no freed heap.
EXACT_HEAP = {"MALLOC_MMAP_THRESHOLD_": str(1 << 16), "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_TOP_PAD_": "0"}


def use_environment(heap: Mapping[str, str], num_threads: int = NUM_THREADS) -> None:
    """Start this program again with `heap`, `num_threads` and no network, unless it already has them."""
    wanted = dict(heap) | {"OMP_NUM_THREADS": str(num_threads), "HF_HUB_OFFLINE": "1"}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], dict(os.environ) | wanted)
    import torch

    torch.set_num_threads(num_threads)


def cpu_name() -> str:
    """Return the kernel's name of the processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def describe_machine() -> str:
    """Return one line: processor, threads, load, versions, whether our attention is the fused one."""
    import torch
    import transformers

    from pretrain.model.fused.operators import load_operators

    attention = "plain" if load_operators() else "fused"
    return (
        f"{cpu_name()} ({torch.backends.cpu.get_cpu_capability()}), {torch.get_num_threads()} threads of "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}, "
        f"transformers {transformers.__version__}, {attention} attention on the processor"
    )


@dataclass(frozen=True)
class Timing:
    """A contender's times, one per round: wall clock, and processor time of all threads."""

    wall_s: list[float]
    cpu_s: list[float]

    @property
    def median_s(self) -> float:
        """The median wall time of a round."""
        return statistics.median(self.wall_s)


def time_in_turn(
    contenders: Mapping[str, Callable[[], object]], num_rounds: int, num_warm_up: int = 2
) -> dict[str, Timing]:
    """Time every contender once per round, in turn, after `num_warm_up` rounds; collect garbage between rounds."""
    timings = {name: Timing([], []) for name in contenders}
    for number in range(num_warm_up + num_rounds):
        gc.collect()
        gc.disable()
        for name, work in contenders.items():
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            work()
            if number >= num_warm_up:
                timings[name].wall_s.append(time.perf_counter() - wall_s)
                timings[name].cpu_s.append(time.process_time() - cpu_s)
        gc.enable()
    return timings


def paired_ratios(ours: Timing, peer: Timing) -> tuple[float, float, float]:
    """Return the speedup of ours over the peer: lower quartile, median, upper quartile of the rounds' ratios."""
    ratios = [theirs / own for theirs, own in zip(peer.wall_s, ours.wall_s, strict=True)]
    if len(ratios) < 2:
        return ratios[0], ratios[0], ratios[0]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return low, middle, high


def keep(name: str, row: Any) -> None:
    """Append a data class or a dictionary to RESULTS/name.jsonl, with the machine and the time."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    content = row if isinstance(row, dict) else asdict(row)
    line = {"machine": describe_machine(), "time": time.strftime("%Y-%m-%dT%H:%M:%S%z")} | content
    with (RESULTS / f"{name}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a plain table: first column left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    print(f"\n{title}")
    for row in [head, *rows]:
        first, *others = (
            cell.ljust(width) if number == 0 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *others]).rstrip())
    sys.stdout.flush()
