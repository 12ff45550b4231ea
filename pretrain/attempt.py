"""One attempt at a run: what goes along with the training state from the processes' start to their end."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
import torch.distributed as dist

from cluster.fault_points import fault_point
from cluster.journal import Journal
from cluster.storage import exclusive_lock
from data_prep.prepared import PreparedCorpus, open_prepared
from pretrain.data.corpora import open_corpora
from pretrain.evaluation.evaluator import Evaluator
from pretrain.evaluation.result import Evaluation
from pretrain.goodput.attempts import recorded_attempt
from pretrain.health.stop import StopRequest, stop_requests
from pretrain.health.stragglers import OwnTime
from pretrain.health.watchdog import Watchdog, take_hang_report
from pretrain.recorder import Recorder
from pretrain.run import Run
from pretrain.saving import Saver
from pretrain.step import StepResult, TrainState

_WAIT_FOR_OLD_WRITER_S = 60.0
"""After kill -9 of the starting process its workers live on for a moment."""


class Attempt:
    """A worker's attendants: recorder, watchdog, evaluator, saver."""

    def __init__(
        self,
        run: Run,
        device: torch.device,
        corpus: PreparedCorpus,
        recorder: Recorder,
        watchdog: Watchdog,
        stop: StopRequest,
    ) -> None:
        config = run.config
        self.run, self.device, self.corpus = run, device, corpus
        self.corpora = open_corpora(corpus, config.data)
        """What training reads: that one, and others mixed in."""
        self.identity = run.identity(self.corpora)
        self.recorder, self.watchdog, self.stop = recorder, watchdog, stop
        self.is_over, self.is_first_start = False, True
        self.evaluator = Evaluator(
            config.validation,
            corpus,
            config.lanes,
            config.segment_tokens,
            config.micro_batch_lanes,
            device,
            watchdog.tick,
        )
        self.saver: Saver
        """Made when the commit to go on from is known."""
        self._own_time = OwnTime(device)
        self._evaluated: tuple[int, float] | None = None

    def evaluate(self, state: TrainState) -> Evaluation:
        """The figures of the model as it is; collective."""
        self.watchdog.at(state.step - 1, "evaluate")
        with self.recorder.span("evaluation_s"):
            evaluation = self.evaluator.during(state.engine.module)
        self._evaluated = (state.step, evaluation.headline.bits_per_byte)
        return evaluation

    def bits_per_byte_at(self, step: int) -> float | None:
        """Validation bits per byte, if there was an evaluation after `step`."""
        return self._evaluated[1] if self._evaluated and self._evaluated[0] == step else None

    def compare_own_times(self, result: StepResult) -> None:
        """Now and then say which workers lag; collective then."""
        self._own_time.add(result.own_s)
        if dist.get_world_size() == 1 or result.step % self.run.config.health.straggler_every_steps:
            return
        times = self._own_time.compare()
        lagging = times.laggards()
        text = "workers' own seconds per step: " + ", ".join(f"{own_s:.3f}" for own_s in times.seconds_W)
        if lagging:
            text += f"; lagging: worker {', '.join(map(str, lagging))}"
        self.recorder.event(
            text, "warning" if lagging else "info", name="stragglers", own_s=times.seconds_W, lagging=lagging
        )


@contextmanager
def attempt(run: Run, device: torch.device) -> Iterator[Attempt]:
    """Take the run up: alone in its folder, recorded, watched; collective."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    with ExitStack() as stack:
        watchdog = stack.enter_context(
            Watchdog(run.folder, rank, world_size, run.config.health.hang_timeout_s)
        )
        recorder = Recorder(None)
        if rank == 0:
            stack.enter_context(exclusive_lock(run.folder / ".writer.lock", wait_s=_WAIT_FOR_OLD_WRITER_S))
            journal = Journal(run.journal)
            stack.enter_context(recorded_attempt(journal, run.folder))
            recorder = Recorder(journal)
            fault_point("attempt.recorded")
            if hang := take_hang_report(run.folder):
                recorder.event(hang, "warning", name="hang")
        stack.callback(recorder.close)
        dist.barrier()
        stop = stack.enter_context(stop_requests(run.folder, looks_for_file=rank == 0))
        corpus = open_prepared(run.prep_folder)
        yield Attempt(run, device, corpus, recorder, watchdog, stop)
