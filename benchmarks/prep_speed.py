"""Compare every stage of prep with its peers, on one core and the same files: part of `make bench-prep`.

    python -m benchmarks.prep_speed CORPUS --peers .venv-bench/bin/python --tokenizer tokenizer.json [--rounds 3]

Each measurement is a process of its own, bound to one core, over texts that are already in memory; peers and ours in
turn, medians of CPU time. Ratios compare numbers measured in the same run.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.prep_timing import ONE_THREAD, Timing

OURS = "permcode"
_ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Comparison:
    """A stage, its target, its peers, and a sample size that the slowest peer can process."""

    stage: str
    target_mb_per_s: float
    peers: tuple[str, ...]
    sample_mb: float


COMPARISONS = (
    Comparison("text", 0, (), 20),
    Comparison("filters", 150, ("bigcode", "bigcode+encoded"), 20),
    Comparison("secrets", 20, ("detect-secrets",), 1.2),
    Comparison("tokenise", 50, ("tokenizers", "tiktoken"), 15),
    Comparison("signatures", 80, ("datasketch", "rensa", "datatrove"), 6),
)


def run_one(command: list[str]) -> Timing:
    """Run `command` and return the timing that it printed."""
    environment = os.environ | ONE_THREAD
    done = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1:]}")
    return Timing(**json.loads(done.stdout.strip().splitlines()[-1]))


def measure(comparison: Comparison, arguments: argparse.Namespace) -> dict[str, list[Timing]]:
    """Run all peers and ours in turn for a number of rounds; return their timings by name."""
    common = [
        str(arguments.corpus),
        "--max-mb",
        str(comparison.sample_mb),
        "--tokenizer",
        str(arguments.tokenizer),
    ]
    commands = {
        peer: [str(arguments.peers), "-m", "benchmarks.prep_peers", peer, *common]
        for peer in comparison.peers
    }
    commands[OURS] = [sys.executable, "-m", "benchmarks.prep_ours", comparison.stage, *common]
    timings: dict[str, list[Timing]] = {name: [] for name in commands}
    for _ in range(arguments.rounds):
        for name, command in commands.items():
            timings[name].append(run_one(command))
    return timings


def report(comparison: Comparison, timings: dict[str, list[Timing]]) -> None:
    """Print one line for each of them."""
    median = {name: statistics.median(t.mb_per_s for t in rounds) for name, rounds in timings.items()}
    for name, rounds in timings.items():
        rates = [t.mb_per_s for t in rounds]
        first = statistics.median(t.num_bytes / 1e6 / t.first_pass_s for t in rounds)
        target = (
            f"target {comparison.target_mb_per_s:g}" if name == OURS and comparison.target_mb_per_s else ""
        )
        print(
            f"{comparison.stage:<11} {name:<16} {median[name]:>8.2f} MB/s ({min(rates):.2f} to {max(rates):.2f},"
            f" first pass {first:.2f})  ours is {median[OURS] / median[name]:>6.1f}x  {target:<10}"
            f" [{rounds[0].num_files} files, {rounds[0].num_bytes / 1e6:.1f} MB: {rounds[0].result}]",
            flush=True,
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--peers", type=Path, required=True, help="the python of the peers' environment")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stages", nargs="*", default=[c.stage for c in COMPARISONS])
    arguments = parser.parse_args()
    for comparison in COMPARISONS:
        if comparison.stage in arguments.stages:
            report(comparison, measure(comparison, arguments))


if __name__ == "__main__":
    main()
