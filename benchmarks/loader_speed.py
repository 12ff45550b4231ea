"""Compare our lanes with other loaders, on one core and the same documents: part of `make bench-loader`.

    python -m benchmarks.loader_speed FOLDER --peers .venv-bench-loader/bin/python [--rounds 5]

FOLDER is the output of `benchmarks.loader_corpus` and `benchmarks.loader_peers write`. Each measurement is a process
of its own, bound to one core, over files in the page cache; all in turn, medians of CPU time.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.loader_timing import LoaderTiming
from benchmarks.prep_timing import ONE_THREAD

_ROOT = Path(__file__).parents[1]
_SHAPES = ((16, 256), (64, 512), (256, 512))
"""Pairs of lanes and segment tokens; the first is the demo's."""
_PEERS = ("webdataset", "mosaicml-streaming", "litdata")
_CURSORS = (0, 1_000, 1_000_000)


def run_one(command: list[str]) -> LoaderTiming:
    """Run `command` and return the timing that it printed."""
    done = subprocess.run(command, cwd=_ROOT, env=os.environ | ONE_THREAD, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1:]}")
    return LoaderTiming(**json.loads(done.stdout.strip().splitlines()[-1]))


def measure(commands: dict[str, list[str]], rounds: int) -> dict[str, list[LoaderTiming]]:
    """Run all commands in turn for a number of rounds; return their timings by name."""
    timings: dict[str, list[LoaderTiming]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            timings[name].append(run_one(command))
    return timings


def report(name: str, rounds: list[LoaderTiming]) -> None:
    """Print one line for a loader."""
    whole = [timing.million_tokens_per_s for timing in rounds]
    later = statistics.median(timing.later_million_tokens_per_s for timing in rounds)
    first = statistics.median(timing.first_wall_s for timing in rounds)
    print(
        f"{name:<32} {statistics.median(whole):>7.1f} million tokens per CPU second ({min(whole):.1f} to "
        f"{max(whole):.1f}; after the first batch {later:.1f}), first batch after {first:.2f} s",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peers", type=Path, required=True, help="the python of the peers' environment")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    folder = str(arguments.folder)
    ours = [sys.executable, "-m", "benchmarks.loader_ours", folder]
    commands = {
        f"permcode {lanes} lanes x {segment}": [*ours, f"--lanes={lanes}", f"--segment-tokens={segment}"]
        for lanes, segment in _SHAPES
    }
    for peer in _PEERS:
        for form in ("documents", "samples"):
            name = f"{peer}:{form}"
            commands[name] = [str(arguments.peers), "-m", "benchmarks.loader_peers", name, folder]
    for name, rounds in measure(commands, arguments.rounds).items():
        report(name, rounds)
    resumes = {
        f"permcode from step {cursor}": [*ours, f"--cursor={cursor}", "--max-tokens=1"] for cursor in _CURSORS
    }
    for name, rounds in measure(resumes, arguments.rounds).items():
        first = statistics.median(timing.first_wall_s for timing in rounds)
        print(f"{name:<32} corpus opened and first batch read after {first:.3f} s", flush=True)


if __name__ == "__main__":
    main()
