"""Time the whole of our prep over a folder on one core: rate, CPU time by step and process, peak memory by process.

    python -m benchmarks.prep_pipeline CORPUS [--max-mb 60] [--set filters.max_parse_error_share=0.1 ...]

Local Ray with one CPU; this process and all it starts are bound to one core. CPU time and memory are those of the
process tree, sampled five times a second, less the CPU time of the sampling; a process's use after its last sample is
missed. The rate counts from the call of `run_prep` in an open Ray session to its return, including the start of its
worker.
"""

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import psutil
import yaml
from rich.console import Console

from benchmarks.prep_timing import choose_sample, use_one_core
from cluster.ray_session import RayConfig, ray_session
from cluster.reporter import Bar, Reporter

_INTERVAL_S = 0.2
DRIVER, WORKERS, SERVICES = "driver", "workers", "Ray's own"


@dataclass(frozen=True)
class Usage:
    """CPU seconds of a role, and the peak memory of one of its processes: private pages, and PSS."""

    cpu_s: float
    peak_private_bytes: int
    peak_pss_bytes: int


@dataclass(frozen=True)
class Step:
    """One progress bar of the stage."""

    label: str
    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class PipelineTiming:
    """The time and memory of one run of prep."""

    num_files: int
    num_bytes: int
    session_start_s: float
    wall_s: float
    cpu_s: float
    usage: dict[str, Usage]
    steps: list[Step]
    facts: dict[str, Any]

    @property
    def mb_per_cpu_s(self) -> float:
        """Million bytes of the corpus per CPU second of all processes."""
        return self.num_bytes / 1e6 / self.cpu_s


class TreeMeter:
    """Samples the CPU time and memory of this process and all its descendants until closed."""

    def __init__(self) -> None:
        self._root = psutil.Process()
        self._cpu_s: dict[tuple[int, float], float] = {}
        self._role: dict[tuple[int, float], str] = {}
        self._private: dict[str, int] = {}
        self._pss: dict[str, int] = {}
        self._looking_s = 0.0
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Record the current figures of all processes."""
        with self._lock:
            start_s = time.thread_time()
            for process in [self._root, *self._root.children(recursive=True)]:
                try:
                    key = (process.pid, process.create_time())
                    times, memory = process.cpu_times(), process.memory_full_info()
                    role = self._role_of(process)
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue
                self._cpu_s[key], self._role[key] = times.user + times.system, role
                self._private[role] = max(self._private.get(role, 0), memory.rss - memory.shared)
                self._pss[role] = max(self._pss.get(role, 0), memory.pss)
            self._looking_s += time.thread_time() - start_s

    def cpu_s(self, role: str | None = None) -> float:
        """Return the CPU seconds of all sampled processes since their starts, less those of the sampling."""
        self.look()
        total_s = sum(cpu_s for key, cpu_s in self._cpu_s.items() if role in (None, self._role[key]))
        return total_s - (self._looking_s if role in (None, DRIVER) else 0.0)

    def usage(self, before_s: Mapping[str, float]) -> dict[str, Usage]:
        """Return the usage of each role; its CPU seconds are those since `before_s`."""
        return {
            role: Usage(self.cpu_s(role) - before_s[role], peak, self._pss[role])
            for role, peak in self._private.items()
        }

    def close(self) -> None:
        """Stop sampling."""
        self._end.set()
        self._thread.join()

    def _role_of(self, process: psutil.Process) -> str:
        if process.pid == self._root.pid:
            return DRIVER
        return WORKERS if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::") else SERVICES

    def _watch(self) -> None:
        while not self._end.wait(_INTERVAL_S):
            self.look()


class _StepReporter(Reporter):
    """Prints nothing to the terminal; records the time of each bar."""

    def __init__(self, meter: TreeMeter) -> None:
        self.said = StringIO()
        super().__init__(console=Console(file=self.said))
        self.steps: list[Step] = []
        self._meter = meter

    @contextmanager
    def bar(self, label: str, total: float, unit: str) -> Iterator[Bar]:
        start_s, start_cpu_s = time.monotonic(), self._meter.cpu_s()
        with super().bar(label, total, unit) as bar:
            yield bar
        self.steps.append(Step(label, time.monotonic() - start_s, self._meter.cpu_s() - start_cpu_s))


def copy_sample(corpus: Path, folder: Path, max_bytes: int) -> tuple[int, int]:
    """Copy a sample of the corpus with its repositories; return the numbers of files and bytes.

    Does not load the sample: this process's peak memory would count as the driver's.
    """
    num_bytes = 0
    chosen = choose_sample(corpus, max_bytes)
    for path in chosen:
        target = folder / path.relative_to(corpus)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        num_bytes += path.stat().st_size
    return len(chosen), num_bytes


def prep_config(corpus: Path, settings: list[str]) -> Any:
    """Return the default config for the folder or JSONL file, changed by `settings` of the form "a.b=value"."""
    from data_prep.config import PrepConfig

    source: dict[str, Any] = {"kind": "directory", "path": str(corpus)}
    if corpus.is_file():
        columns = {"content": "content", "repository": "repository", "path": "path"}
        source = {"kind": "jsonl", "urls": [str(corpus)], "columns": columns}
    values: dict[str, Any] = {"source": source}
    for setting in settings:
        key, _, value = setting.partition("=")
        at = values
        for name in key.split(".")[:-1]:
            at = at.setdefault(name, {})
        at[key.split(".")[-1]] = yaml.safe_load(value)
    return PrepConfig.model_validate(values)


def run(corpus: Path, folder: Path, settings: list[str], num_files: int, num_bytes: int) -> PipelineTiming:
    """Run prep in a new Ray session and measure it."""
    from data_prep.stage import run_prep

    meter = TreeMeter()
    opened_s = time.monotonic()
    with ray_session(RayConfig(num_cpus=1), folder / "logs"):
        reporter = _StepReporter(meter)
        start_s, start_cpu_s = time.monotonic(), meter.cpu_s()
        before_s = {role: meter.cpu_s(role) for role in (DRIVER, WORKERS, SERVICES)}
        try:
            summary = run_prep(prep_config(corpus, settings), 0, folder / "prep", reporter)
        except BaseException:
            print(reporter.said.getvalue(), file=sys.stderr)
            raise
        wall_s, cpu_s = time.monotonic() - start_s, meter.cpu_s() - start_cpu_s
        usage = meter.usage(before_s)
    meter.close()
    print(reporter.said.getvalue(), file=sys.stderr)
    facts = {key: value for key, value in summary.items() if isinstance(value, int | float | str)}
    session_start_s = start_s - opened_s
    return PipelineTiming(num_files, num_bytes, session_start_s, wall_s, cpu_s, usage, reporter.steps, facts)


def main() -> None:
    """Time prep and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--max-mb", type=float, default=60)
    parser.add_argument("--set", nargs="*", default=[])
    arguments = parser.parse_args()
    use_one_core()
    with tempfile.TemporaryDirectory(prefix="permcode-bench-") as temporary:
        folder = Path(temporary)
        corpus = arguments.corpus
        if corpus.is_file():
            with corpus.open("rb") as lines:
                num_files, num_bytes = sum(1 for _ in lines), corpus.stat().st_size
        else:
            corpus = folder / "corpus"
            num_files, num_bytes = copy_sample(arguments.corpus, corpus, int(arguments.max_mb * 1e6))
        timing = run(corpus, folder / "out", arguments.set, num_files, num_bytes)
        shutil.rmtree(folder / "out")
    print(json.dumps(asdict(timing)), flush=True)


if __name__ == "__main__":
    main()
