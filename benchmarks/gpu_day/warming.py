"""Compilation ahead of measurements, in as many processes as there are cores; caches on disk keep the results."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import Any

MOST_PROCESSES = 12


def _use_one_core() -> None:
    """Let torch.compile start no processes of its own; it looks when torch is imported."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"


def in_parallel(work: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], seconds: float) -> list[Any]:
    """Return what each call returns, None for those that fail or take longer than that; the others are ended."""
    num_processes = max(1, min(MOST_PROCESSES, (os.cpu_count() or 2) - 2, len(arguments)))
    pool = ProcessPoolExecutor(num_processes, mp_context=get_context("spawn"), initializer=_use_one_core)
    pending: list[Future[Any]] = [pool.submit(work, *one) for one in arguments]
    wait(pending, timeout=seconds)
    found = [one.result() if one.done() and not one.exception() else None for one in pending]
    processes = list(pool._processes.values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        if process.is_alive():
            process.terminate()
    return found
