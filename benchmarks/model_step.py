"""Compare a training step of the model with its peers': `make bench-model`, or `python -m benchmarks.model_step`.

All contenders run in one process in turn, one step each per round; the ratios are medians over rounds of the peer's
time over ours in the same round. On AMD processors PyTorch's float32 linear layers use a library that is slow there
(MKL), so part of a float32 ratio is an artefact of the machine.
"""

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.model_machine import (
    NUM_THREADS,
    STEADY_HEAP,
    Timing,
    describe_machine,
    keep,
    paired_ratios,
    print_table,
    time_in_turn,
    use_environment,
)
from benchmarks.model_sizes import SIZES, Batch, Size


@dataclass(frozen=True)
class Case:
    """One table: a size, the number of predicted tokens, products in bfloat16 or float32, rounds."""

    size: Size
    num_targets: int
    bfloat16: bool
    num_rounds: int

    @property
    def title(self) -> str:
        """The heading of the table."""
        return f"{self.size.name}, {'bf16' if self.bfloat16 else 'fp32'}, P = {self.num_targets}"


def cases(quick: bool) -> list[Case]:
    """Return the cases of the benchmark; with `quick` a few small ones."""
    small, medium = SIZES["S"], SIZES["M"]
    sixth, medium_sixth = small.segment_tokens // 6, medium.segment_tokens // 6
    if quick:
        return [Case(small, sixth, True, 3), Case(SIZES["tiny"], 10, False, 3)]
    return [
        Case(small, sixth, True, 25),
        Case(small, small.segment_tokens // 2, True, 15),
        Case(medium, medium_sixth, True, 15),
        Case(small, sixth, False, 9),
        Case(medium, medium_sixth, False, 7),
    ]


def contenders(case: Case) -> dict[str, Callable[[], object]]:
    """Return the contenders' steps by name; ours come first."""
    from benchmarks.model_contenders import HFGPT2, HFXLNet, Ours

    size, batch = case.size, Batch.random(case.size, case.num_targets, seed=0)
    if not case.bfloat16:
        return {
            "ours float32": Ours(size, "float32", batch).step,
            "XLNet float32": HFXLNet(size, "float32", batch).step,
            "GPT-2 float32": HFGPT2(size, "float32", batch).step,
        }
    return {
        "ours bfloat16": Ours(size, "bfloat16", batch).step,
        "ours autocast": Ours(size, "autocast", batch).step,
        "XLNet autocast": HFXLNet(size, "autocast", batch).step,
        "GPT-2 autocast": HFGPT2(size, "autocast", batch).step,
        "GPT-2 autocast, fused GELU": HFGPT2(size, "autocast", batch, activation="gelu").step,
    }


def measure(case: Case) -> None:
    """Run one case, print its table and write its rows to the results file."""
    timings = time_in_turn(contenders(case), case.num_rounds)
    ours = [name for name in timings if name.startswith("ours")]
    rows = [
        row_of(case, name, timing, {own: timings[own] for own in ours}) for name, timing in timings.items()
    ]
    head = ["contender", "ms a step", "ms CPU", "tokens/s", *(f"against {name}" for name in ours)]
    print_table(f"{case.title}: median of {case.num_rounds} rounds (lower - upper quartile)", head, rows)


def row_of(case: Case, name: str, timing: Timing, ours: dict[str, Timing]) -> list[str]:
    """Return the table's row of a contender, its time and the speedup of ours; write it to the results file."""
    ratios = {own: paired_ratios(own_timing, timing) for own, own_timing in ours.items()}
    keep(
        "step",
        {
            "size": case.size.name,
            "num_targets": case.num_targets,
            "contender": name,
            "median_s": timing.median_s,
            "wall_s": timing.wall_s,
            "cpu_s": timing.cpu_s,
            "faster": {own: ratio[1] for own, ratio in ratios.items()},
        },
    )
    cells = [f"{middle:.2f}x ({low:.2f} - {high:.2f})" for low, middle, high in ratios.values()]
    times = [f"{1000 * seconds:.0f}" for seconds in (timing.median_s, statistics.median(timing.cpu_s))]
    return [name, *times, f"{case.size.num_tokens / timing.median_s:.0f}", *cells]


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    parser.add_argument("--size", choices=("S", "M"))
    parser.add_argument("--threads", type=int, default=NUM_THREADS, help="1 where others use the machine too")
    arguments = parser.parse_args()
    use_environment(STEADY_HEAP, arguments.threads)
    print(f"Training step: {describe_machine()}")
    for case in cases(arguments.quick):
        if arguments.size in (None, case.size.name):
            measure(case)


if __name__ == "__main__":
    main()
