"""How one loader is timed: a process bound to one core that reads a number of tokens.

Standard library only: the peers' environment imports this too.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class LoaderTiming:
    """What one process measured from before the loader was made; CPU time is of all threads of the process."""

    num_tokens: int
    wall_s: float
    cpu_s: float
    first_tokens: int
    """Of the first batch."""
    first_wall_s: float
    first_cpu_s: float

    @property
    def million_tokens_per_s(self) -> float:
        """Per CPU second, everything included."""
        return self.num_tokens / self.cpu_s / 1e6

    @property
    def later_million_tokens_per_s(self) -> float:
        """Per CPU second, after the first batch."""
        return (self.num_tokens - self.first_tokens) / (self.cpu_s - self.first_cpu_s) / 1e6

    def print(self) -> None:
        """One line of JSON, the last that the process prints."""
        print(json.dumps(asdict(self)), flush=True)


def time_batches(sizes: Iterator[int], max_tokens: int) -> LoaderTiming:
    """Draw batches, of which the iterator tells the sizes in tokens, until there are `max_tokens` or no more."""
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
