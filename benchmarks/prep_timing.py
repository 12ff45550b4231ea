"""The timing of one stage: on one core, by the CPU time of the process, over texts that are already in memory.

Standard library only: the peers' environment imports this too.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.prep_corpus import corpus_files

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "ARROW_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "PYTHONHASHSEED": "0",
}
_MIN_CPU_S = 1.0
_MAX_PASSES = 50


@dataclass(frozen=True)
class Sample:
    """Texts of a corpus with the paths they were read from."""

    paths: list[Path]
    texts: list[bytes]

    @property
    def num_bytes(self) -> int:
        """The size of all texts."""
        return sum(map(len, self.texts))


@dataclass(frozen=True)
class Timing:
    """The measurements of one process: the first pass over the sample, and the mean of all passes."""

    num_files: int
    num_bytes: int
    first_pass_s: float
    mean_pass_s: float
    num_passes: int
    result: str

    @property
    def mb_per_s(self) -> float:
        """Million bytes per CPU second, mean of all passes."""
        return self.num_bytes / 1e6 / self.mean_pass_s

    def print(self) -> None:
        """Print one line of JSON, the last line of the process."""
        print(json.dumps(asdict(self)), flush=True)


def use_one_core() -> None:
    """Bind this process and those it starts to the last core."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.environ.update(ONE_THREAD)


def choose_sample(corpus: Path, max_bytes: int) -> list[Path]:
    """Return every k-th file of the corpus, with k such that they have about `max_bytes`."""
    paths = list(corpus_files(corpus))
    total_bytes = sum(path.stat().st_size for path in paths)
    step = max(1, round(total_bytes / max_bytes))
    return paths[step // 2 :: step]


def load_sample(corpus: Path, max_bytes: int) -> Sample:
    """Load the chosen files into memory."""
    chosen = choose_sample(corpus, max_bytes)
    return Sample(chosen, [path.read_bytes() for path in chosen])


def time_passes(sample: Sample, work: Callable[[], str]) -> Timing:
    """Run `work` over the sample until a second of CPU time is used, at least once."""
    passes_s: list[float] = []
    result = ""
    while sum(passes_s) < _MIN_CPU_S and len(passes_s) < _MAX_PASSES:
        start_s = time.process_time()
        result = work()
        passes_s.append(time.process_time() - start_s)
    mean_s = sum(passes_s) / len(passes_s)
    return Timing(len(sample.texts), sample.num_bytes, passes_s[0], mean_s, len(passes_s), result)
