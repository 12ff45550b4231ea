"""The tests that need a GPU, in several processes side by side, because most of their time is compilation."""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.warming import num_processes

ROOT = Path(__file__).resolve().parents[2]
TABLE = "Tests that need a GPU"
INTERPRETED = "PERMCODE_GPU_TESTS_INTERPRETED"
"""Set: tests of kernels run on this processor, which interprets them."""
_OUTCOME = re.compile(r"^(tests/gpu/\S.*?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b", re.MULTILINE)
# The tests' own settings need what is not installed everywhere; tests/gpu has all that its tests use.
_OPTIONS = [
    "--confcutdir=tests/gpu",
    "-o",
    "addopts=--import-mode=importlib --strict-markers",
    "-o",
    "filterwarnings=default",
    "-p",
    "no:cacheprovider",
    "-m",
    "gpu",
]


def run(day: Day) -> None:
    """Run all tests; raise if one fails, or none is there."""
    if find_spec("pytest") is None:
        day.note("left out: pytest is not installed")
        return
    environment = os.environ | ({} if day.has_gpu else {INTERPRETED: "1"})
    words = [sys.executable, "-m", "pytest", *_OPTIONS]
    listing = subprocess.run(
        [*words, "--collect-only", "-q", "tests/gpu"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    names = [line for line in listing.stdout.splitlines() if "::" in line and line.startswith("tests/")]
    if not day.has_gpu:
        names = _some(names)
    if listing.returncode or not names:
        raise AssertionError(f"the tests cannot be collected:\n{listing.stdout}{listing.stderr}")
    num_parts = num_processes(len(names))
    logs = [day.folder / f"{day.part}-{number}.log" for number in range(num_parts)]
    running = []
    for number, log in enumerate(logs):
        with log.open("w") as file:
            # Neighbours in the list need the same kernels: they go to different processes.
            command = [*words, "-v", "-rs", *names[number::num_parts]]
            running.append(
                subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT)
            )
    while any(one.poll() is None for one in running) and day.left_s() > 0:
        time.sleep(0.2)
    unfinished = [one for one in running if one.poll() is None]
    for one in unfinished:
        one.kill()
        one.wait()
    outcomes = dict(found for log in logs for found in _OUTCOME.findall(log.read_text(errors="replace")))
    _report(day, names, outcomes)
    failed = [name for name, outcome in outcomes.items() if outcome in ("FAILED", "ERROR")]
    if failed or unfinished or any(one.returncode not in (0, 5) for one in running):
        raise AssertionError(
            f"{len(failed)} tests failed, {len(names) - len(outcomes)} did not end: {failed}"
        )


def _some(names: list[str]) -> list[str]:
    """Return the first two tests of every file: interpreted kernels take their time."""
    by_file: dict[str, list[str]] = {}
    for name in names:
        by_file.setdefault(name.split("::")[0], []).append(name)
    return [name for of_file in by_file.values() for name in of_file[:2]]


def _report(day: Day, names: list[str], outcomes: dict[str, str]) -> None:
    """Add a row for each file, and a line for each test that failed or did not end."""
    by_file: dict[str, Counter[str]] = {}
    for name in names:
        outcome = outcomes.get(name, "did not end").lower()
        by_file.setdefault(name.split("::")[0], Counter())[outcome] += 1
        if outcome not in ("passed", "skipped"):
            day.note(f"{name}: {outcome}")
    kinds = ["passed", "failed", "error", "skipped", "did not end"]
    for file, counts in by_file.items():
        day.add(TABLE, {"file": file} | {kind: counts[kind] for kind in kinds})
