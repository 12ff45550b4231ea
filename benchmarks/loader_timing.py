"""The timing of one loader: a process bound to one core reads a number of tokens.

Standard library only: the peers' environment imports this too.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class LoaderTiming:
    """The measurements of one process from before the loader is created; CPU time is of all threads."""

    num_tokens: int
    wall_s: float
    cpu_s: float
    first_tokens: int
    """The tokens of the first batch."""
    first_wall_s: float
    first_cpu_s: float

    @property
    def million_tokens_per_s(self) -> float:
        """Million tokens per CPU second, everything included."""
        return self.num_tokens / self.cpu_s / 1e6

    @property
    def later_million_tokens_per_s(self) -> float:
        """Million tokens per CPU second after the first batch."""
        return (self.num_tokens - self.first_tokens) / (self.cpu_s - self.first_cpu_s) / 1e6

    def print(self) -> None:
        """Print one line of JSON, the last line of the process."""
        print(json.dumps(asdict(self)), flush=True)


def time_batches(sizes: Iterator[int], max_tokens: int) -> LoaderTiming:
    """Time the reading of batches, whose sizes the iterator yields, up to `max_tokens` tokens or its end."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    first_tokens = num_tokens = next(sizes)
    first_wall_s, first_cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    while num_tokens < max_tokens:
        size = next(sizes, 0)
        if size == 0:
            break
        num_tokens += size
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    return LoaderTiming(num_tokens, wall_s, cpu_s, first_tokens, first_wall_s, first_cpu_s)
