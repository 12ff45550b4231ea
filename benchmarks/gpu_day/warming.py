"""Compilation ahead of measurements, in as many processes as there are cores; caches on disk keep the results."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any

_MOST_PROCESSES = 12


def num_processes(num_tasks: int) -> int:
    """Return how many processes to use: two cores stay free."""
    return max(1, min(_MOST_PROCESSES, (os.cpu_count() or 2) - 2, num_tasks))


def _use_one_core() -> None:
    """Let torch.compile start no processes of its own; it looks when torch is imported."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"


def in_parallel(work: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], seconds: float) -> list[Any]:
    """Return what each call returns, None for those that fail or take longer than that; the others are ended."""
    context = get_context("spawn")
    pool = ProcessPoolExecutor(num_processes(len(arguments)), mp_context=context, initializer=_use_one_core)
    pending: list[Future[Any]] = [pool.submit(work, *one) for one in arguments]
    wait(pending, timeout=seconds)
    found = [one.result() if one.done() and not one.exception() else None for one in pending]
    processes = list(pool._processes.values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        if process.is_alive():
            process.terminate()
    return found
