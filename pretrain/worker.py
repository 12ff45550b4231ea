"""A pretraining worker: the function that Ray Train runs in every process."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from cluster.fault_points import fault_point
from cluster.journal import Journal
from cluster.storage import exclusive_lock
from cluster.system_metrics import sample_system
from cluster.watch import sigterm_received
from pretrain.files import PretrainFiles
from pretrain.gpu_check import check_gpu
from pretrain.health.stop import stop_requests
from pretrain.health.watchdog import Watchdog, take_hang_report
from pretrain.joined import is_first_of_node, joined
from pretrain.journal.events import Hang, Stopped
from pretrain.journal.recorder import Recorder, recorded_attempt
from pretrain.pretrainer import Pretrainer
from pretrain.run import Run
from pretrain.run_context import RunContext
from pretrain.trainer import Outcome

_WAIT_FOR_OLD_WRITER_S = 60.0
"""How long to wait for workers that outlive a kill -9 of the process that started them."""


def work(settings: dict[str, Any]) -> None:
    """Join the process group that Ray set up, train, and leave it orderly."""
    run: Run = replace(settings["run"], lease=settings["lease"])
    with joined(settings, "pretrain") as device:
        with sample_system(run.folder) if is_first_of_node() else nullcontext():
            train(run, device)


def train(run: Run, device: torch.device) -> None:
    """Train to the last step and write `model/` and `result.json`; needs a process group.

    Returns early, with a checkpoint of the last step, when a stop was requested. Raises UserError as
    `Pretrainer` does.
    """
    # The rounding of sums depends on the number of threads.
    if threads := run.config.threads_per_worker or (1 if run.config.deterministic else None):
        torch.set_num_threads(threads)
    with _opened(run, device) as context:
        if device.type == "cuda":
            vocab_size = context.corpus.tokenizer.vocab_size
            if reason := check_gpu(run.config, vocab_size, dist.get_world_size(), device):
                context.recorder.event(f"attention and loss run in plain PyTorch: {reason}", level="warning")
        is_first_start, outcome = True, Outcome.REWOUND
        while outcome is Outcome.REWOUND:
            trainer = Pretrainer(context, is_first_start)
            try:
                outcome = trainer.train()
                step = trainer.state.step
                if outcome is Outcome.STOPPED:
                    context.recorder.end(f"stopped after step {step}", Stopped(step=step))
                elif outcome is Outcome.FINISHED:
                    trainer.finish()
            finally:
                trainer.close()
            is_first_start = False


@contextmanager
def _opened(run: Run, device: torch.device) -> Iterator[RunContext]:
    """Open the run: lock its folder, record the attempt, start the watchdog; collective."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    with ExitStack() as stack:
        watchdog = stack.enter_context(
            Watchdog(run.folder, rank, world_size, run.config.health.hang_timeout_s)
        )
        recorder = Recorder(None)
        if rank == 0:
            stack.enter_context(
                exclusive_lock(run.folder / PretrainFiles.WRITER_LOCK, wait_s=_WAIT_FOR_OLD_WRITER_S)
            )
            journal = Journal(run.journal)
            stack.enter_context(recorded_attempt(journal, run.folder))
            recorder = Recorder(journal, run.lease)
            fault_point("attempt.recorded")
            if hang := take_hang_report(run.folder):
                recorder.event(hang, Hang(), "warning")
        stack.callback(recorder.close)
        dist.barrier()
        stop = stack.enter_context(stop_requests(run.folder, rank == 0, sigterm_received))
        yield RunContext.open(run, device, recorder, watchdog, stop)
