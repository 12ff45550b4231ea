"""Times and memory on a device: contenders side by side, A B A B, medians of rounds."""

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch

from benchmarks.gpu_day.day import Day
from pretrain.plan.trace import OperationCounter

Work = Callable[[], object]
_SLEEP_SHARE = 1.5
"""The GPU sleeps this much longer than the host takes to launch what is timed, so that launches are not in the time."""
_CYCLES_PER_S = 1.8e9
_MAX_SLEEP_S = 0.2


@dataclass(frozen=True)
class Times:
    """A contender's times, one per round."""

    rounds_ms: list[float]

    @property
    def median_ms(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.rounds_ms)

    @property
    def spread(self) -> str:
        """The fastest and the slowest round."""
        return f"{min(self.rounds_ms):.4g} to {max(self.rounds_ms):.4g}"


def wait_for(device: torch.device) -> None:
    """Wait until all work started on the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_ms(work: Work, device: torch.device, host_s: float) -> float:
    """Return the time that the device takes for `work`, for whose launch the host takes `host_s`."""
    if device.type != "cuda":
        started_s = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - started_s)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda._sleep(int(min(_SLEEP_SHARE * host_s, _MAX_SLEEP_S) * _CYCLES_PER_S))  # type: ignore[no-untyped-call]
    start.record()
    work()
    end.record()
    torch.cuda.synchronize(device)
    return float(start.elapsed_time(end))


def wall_ms(work: Work, device: torch.device, _host_s: float = 0.0) -> float:
    """Return the time until `work` is done on the device, with what the host does."""
    wait_for(device)
    started_s = time.perf_counter()
    work()
    wait_for(device)
    return 1e3 * (time.perf_counter() - started_s)


def side_by_side(
    contenders: Mapping[str, Work],
    day: Day,
    seconds: float,
    most_rounds: int = 20,
    timer: Callable[[Work, torch.device, float], float] = device_ms,
) -> dict[str, Times]:
    """Time every contender once per round, in turn, for about `seconds`, at least twice; on a CPU once."""
    found = {name: Times([]) for name in contenders}
    if not day.has_gpu:
        # Nothing is measured, and interpreted kernels take their time.
        for name, work in contenders.items():
            found[name].rounds_ms.append(timer(work, day.device, 0.0))
        return found
    host_s = {}
    for name, work in contenders.items():
        work()
        wait_for(day.device)
        started_s = time.perf_counter()
        work()
        host_s[name] = time.perf_counter() - started_s
        wait_for(day.device)
    started_s, number = time.perf_counter(), 0
    while number < 2 or (number < most_rounds and time.perf_counter() - started_s < seconds):
        for name, work in contenders.items():
            found[name].rounds_ms.append(timer(work, day.device, host_s[name]))
        number += 1
    return found


def free_memory(device: torch.device) -> None:
    """Give back what nothing refers to, so that the next contender has the whole device."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


class Peak:
    """The most bytes of tensors alive at once in a block, on top of those before it.

    Without a GPU the bytes of what operations return are counted instead.
    """

    num_bytes = 0


@contextmanager
def peak_of(device: torch.device) -> Iterator[Peak]:
    """Measure the peak of the block."""
    peak = Peak()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    with OperationCounter() if device.type != "cuda" else nullcontext() as counter:
        yield peak
    if counter is not None:
        peak.num_bytes = counter.peak_bytes
    else:
        torch.cuda.synchronize(device)
        peak.num_bytes = torch.cuda.max_memory_allocated(device) - before


EXPONENT = "exponent (1 linear, 2 quadratic)"
"""The column of what `growth_exponent` returns."""


def growth_exponent(lengths: list[int], peaks: list[float]) -> float:
    """Return the exponent e of peak ~ L^e between the two longest lengths; 1 is linear, 2 is quadratic."""
    (one, first), (two, second) = sorted(zip(lengths, peaks, strict=True))[-2:]
    return math.log(max(second, 1.0) / max(first, 1.0)) / math.log(two / one)
