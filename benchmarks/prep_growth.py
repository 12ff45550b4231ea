"""Measure how prep's cost and memory grow with the corpus, and extrapolate to 1 TB and 10 TB on 100 cores.

    python -m benchmarks.prep_growth CORPUS [--max-mb 150] [--larger CORPUS-4] [--many-files 200000]

Whole runs on one core over a sixteenth of the corpus, a quarter, all of it and, with `--larger`, a folder of several
times its size; then over very many very small files, which shows the driver's time and memory per file. The forecast is
computed from these figures: the time of steps that are split into tasks is divided by the cores, the driver's is not.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.prep_pipeline import DRIVER, WORKERS, PipelineTiming, Step, Usage
from benchmarks.prep_timing import load_sample

_ROOT = Path(__file__).parents[1]
_PIECE_BYTES = 400
_CORES = 100
_TB = 1e12


@dataclass(frozen=True)
class Forecast:
    """The cost per byte of corpus of each step that is split into tasks, and the driver's cost per file."""

    step_s_per_byte: dict[str, float]
    driver_s_per_file: float
    driver_bytes_per_file: float
    mean_file_bytes: float

    def print(self, corpus_bytes: float) -> None:
        """Print the forecast for a corpus of that size."""
        num_files = corpus_bytes / self.mean_file_bytes
        print(f"{corpus_bytes / _TB:.0f} TB, {num_files / 1e6:.0f}M files:")
        for label, cost in self.step_s_per_byte.items():
            print(f"  {label:<32} {corpus_bytes * cost / _CORES / 60:>8.1f} min on {_CORES} cores")
        driver_min = num_files * self.driver_s_per_file / 60
        driver_gb = num_files * self.driver_bytes_per_file / 1e9
        print(f"  {'driver, on one core':<32} {driver_min:>8.1f} min, {driver_gb:.0f} GB of memory")


def run_pipeline(corpus: Path, max_mb: float, *more: str) -> PipelineTiming:
    """Run prep in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.prep_pipeline", str(corpus), "--max-mb", str(max_mb), *more]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr[-2000:]}")
    printed: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    printed["usage"] = {role: Usage(**usage) for role, usage in printed["usage"].items()}
    printed["steps"] = [Step(**step) for step in printed["steps"]]
    return PipelineTiming(**printed)


def write_many_files(corpus: Path, target: Path, num_files: int) -> None:
    """Write a JSONL of pieces of the corpus's files, each as a file of its own in one of a few hundred repositories."""
    sample = load_sample(corpus, int(1.5 * num_files * _PIECE_BYTES))
    pieces = (
        text[start : start + _PIECE_BYTES].decode(errors="ignore")
        for text in sample.texts
        for start in range(0, len(text) - _PIECE_BYTES, _PIECE_BYTES)
    )
    with open(target, "w", encoding="utf-8") as sink:
        for number, piece in zip(range(num_files), pieces, strict=False):
            row = {
                "content": piece,
                "repository": f"owner/{number // 500}",
                "path": f"source/part{number}.py",
            }
            sink.write(json.dumps(row) + "\n")


def step_cpu_s(timing: PipelineTiming, label: str) -> float:
    """Return the CPU seconds of all progress bars of that name."""
    return sum(step.cpu_s for step in timing.steps if step.label == label)


def print_growth(timings: list[PipelineTiming]) -> None:
    """Print a table of time by step and one of memory by process."""
    labels = dict.fromkeys(step.label for timing in timings for step in timing.steps)
    head = "".join(f"{timing.num_bytes / 1e6:>12.1f} MB" for timing in timings)
    print(f"CPU seconds per 100 MB{'':<12}{head}")
    for label in labels:
        costs = [step_cpu_s(timing, label) / timing.num_bytes * 1e8 for timing in timings]
        print(f"{label:<34}" + "".join(f"{cost:>15.2f}" for cost in costs))
    outside = [(t.cpu_s - sum(s.cpu_s for s in t.steps)) / t.num_bytes * 1e8 for t in timings]
    print(f"{'between the steps (driver)':<34}" + "".join(f"{cost:>15.2f}" for cost in outside))
    print(f"{'all, MB per CPU second':<34}" + "".join(f"{t.mb_per_cpu_s:>15.2f}" for t in timings))
    for role in (WORKERS, DRIVER):
        for name in ("peak_private_bytes", "peak_pss_bytes"):
            peaks = [getattr(timing.usage[role], name) / 1e6 for timing in timings]
            print(f"{role + ', ' + name[5:-6] + ', MB':<34}" + "".join(f"{peak:>15.0f}" for peak in peaks))


def forecast(timings: list[PipelineTiming], few: PipelineTiming, many: PipelineTiming) -> Forecast:
    """Return slopes between the two largest runs (fixed costs cancel out), and between few and many files."""
    small, large = timings[-2:]
    more_bytes, more_files = large.num_bytes - small.num_bytes, many.num_files - few.num_files
    slopes = {
        label: max(0.0, step_cpu_s(large, label) - step_cpu_s(small, label)) / more_bytes
        for label in dict.fromkeys(step.label for step in large.steps)
    }
    driver = [timing.usage[DRIVER] for timing in (few, many)]
    return Forecast(
        step_s_per_byte=slopes,
        driver_s_per_file=(driver[1].cpu_s - driver[0].cpu_s) / more_files,
        driver_bytes_per_file=(driver[1].peak_private_bytes - driver[0].peak_private_bytes) / more_files,
        mean_file_bytes=large.num_bytes / large.num_files,
    )


def main() -> None:
    """Print growth and forecast."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--max-mb", type=float, default=150)
    parser.add_argument("--larger", type=Path)
    parser.add_argument("--many-files", type=int, default=200_000)
    arguments = parser.parse_args()
    timings = [run_pipeline(arguments.corpus, arguments.max_mb / part) for part in (16, 4, 1)]
    if arguments.larger is not None:
        timings.append(run_pipeline(arguments.larger, 1e6))
    print_growth(timings)
    with tempfile.TemporaryDirectory(prefix="permcode-bench-") as folder:
        runs = []
        for num_files in (arguments.many_files // 4, arguments.many_files):
            jsonl = Path(folder, f"{num_files}.jsonl")
            write_many_files(arguments.corpus, jsonl, num_files)
            runs.append(run_pipeline(jsonl, 0))
    for timing in runs:
        usage = timing.usage[DRIVER]
        print(
            f"{timing.num_files:,} files of {_PIECE_BYTES} bytes: driver {usage.cpu_s:.1f} CPU s,"
            f" {usage.peak_private_bytes / 1e6:.0f} MB; workers {timing.usage[WORKERS].cpu_s:.1f} CPU s,"
            f" {timing.usage[WORKERS].peak_private_bytes / 1e6:.0f} MB"
        )
    costs = forecast(timings, *runs)
    print(
        f"driver per file: {costs.driver_s_per_file * 1e6:.0f} us, {costs.driver_bytes_per_file:.0f} bytes;"
        f" a file has {costs.mean_file_bytes:.0f} bytes"
    )
    for corpus_bytes in (_TB, 10 * _TB):
        costs.print(corpus_bytes)


if __name__ == "__main__":
    main()
