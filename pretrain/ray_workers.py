"""Training processes under Ray Train: start, restart, stop with a checkpoint, and errors in one line."""

import gc
import time
from collections.abc import Callable
from typing import Any

from cluster import metrics_export, run_state, structured_log
from cluster.errors import RetryableError
from cluster.nodes import NodeWatch, shared_marker, watched_nodes
from cluster.reporter import Reporter
from cluster.resources import wait_for_workers
from pretrain.attempt import Attempt
from pretrain.files import PretrainFiles
from pretrain.health.stop import request_stop, wait_or_stop
from pretrain.workers import Workers, lasting_outputs

PAUSE_S = 5.0
"""From the failure of workers to their next start: those that are left end meanwhile."""


def run_workers(
    workers: Workers,
    work: Callable[[dict[str, Any]], None],
    settings: dict[str, Any],
    reporter: Reporter,
) -> None:
    """Run `work(settings)` in every worker until it has ended in all; needs an open Ray session.

    The settings get what `joined` reads. Workers that fail, lose their node or hand over are started again. Raises
    UserError for a user's error in a worker, RetryableError when workers hang or are lost too often or the cluster has
    no room for them, RuntimeError for an unexpected error in a worker, and KeyboardInterrupt when a stop was requested,
    even if the workers finished all the same: their results remain.
    """
    folder = workers.folder
    folder.mkdir(parents=True, exist_ok=True)
    workers.remove_requests()
    num_failures = num_out_of_memory = 0
    with shared_marker(folder) as marker, watched_nodes(reporter.warn) as nodes:
        settings = {**settings, **workers.settings(), "marker": marker}
        while True:
            before = lasting_outputs(folder)
            failure, is_handed_over = _run_once(workers, work, settings, nodes, reporter)
            if failure is None:
                if not is_handed_over:
                    break
                reporter.line(f"{workers.what}: the workers ended with a checkpoint and are started again")
                continue
            num_failures = 0 if lasting_outputs(folder) - before else num_failures + 1
            is_out_of_memory = isinstance(failure, RetryableError) and failure.kind == "out of memory"
            num_out_of_memory = num_out_of_memory + 1 if is_out_of_memory else 0
            # The first time something else may have taken the memory.
            if num_out_of_memory > 1 and (smaller := workers.with_less_memory(settings)) is not None:
                settings, num_failures, num_out_of_memory = smaller, 0, 0
            if num_failures > workers.max_restarts or not isinstance(failure, RetryableError):
                raise failure
            reporter.warn(
                f"{workers.what} workers failed ({failure}), see {workers.logs}; they are started again"
            )
            time.sleep(PAUSE_S)
    # A handle of Ray's that is dropped after its shutdown ends the process with another exit code.
    gc.collect()
    if (folder / PretrainFiles.STOP).exists():
        (folder / PretrainFiles.STOP).unlink()
        raise KeyboardInterrupt


def _run_once(
    workers: Workers,
    work: Callable[[dict[str, Any]], None],
    settings: dict[str, Any],
    nodes: NodeWatch | None,
    reporter: Reporter,
) -> tuple[Exception | None, bool]:
    """Return why the workers failed, if they did, and whether they ended to be started again."""
    metrics_export.show(metrics_export.WORKERS, 0)
    num_workers = wait_for_room(workers, settings["backend"] == "nccl", reporter)
    if num_workers < workers.sizes[0]:
        reporter.warn(
            f"{workers.what} goes on with {num_workers} of {workers.sizes[0]} workers, the same batch per step, "
            "until there is room for more"
        )
    with (
        Attempt(workers, num_workers, nodes, reporter) as attempt,
        structured_log.at(attempt=attempt.number),
    ):
        show_attempt(attempt.number, num_workers)
        attempt.prepare(work, settings)
        wait_or_stop(attempt.look, lambda: request_stop([workers.folder], reporter))
        failure = attempt.failure()
        is_done = any((workers.folder / name).exists() for name in (PretrainFiles.STOP, PretrainFiles.RESULT))
        return failure, attempt.take_handover() and not is_done


def wait_for_room(workers: Workers, on_gpu: bool, reporter: Reporter) -> int:
    """Wait until there is room for the workers, and return for how many of them."""
    with run_state.waiting_for(f"room for {workers.sizes[0]} {workers.what} workers"):
        return wait_for_workers(workers.what, workers.sizes, workers.resources, on_gpu, reporter)


def show_attempt(attempt: int, num_workers: int) -> None:
    """Show in the state of the run and in the metrics that workers run."""
    run_state.change(attempt=attempt, num_workers=num_workers)
    metrics_export.show(metrics_export.ATTEMPT, attempt)
    metrics_export.show(metrics_export.WORKERS, num_workers)
