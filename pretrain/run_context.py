"""What a pretraining worker keeps from its start to its end."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from data_prep.finished.prepared import PreparedCorpus, open_prepared
from pretrain.agreement import agreed
from pretrain.checkpoint.compatibility import RunIdentity
from pretrain.data.corpora import WeightedCorpus, open_corpora
from pretrain.evaluation.evaluator import Evaluator
from pretrain.health.stop import StopRequest
from pretrain.health.stragglers import OwnTime
from pretrain.health.watchdog import Watchdog
from pretrain.journal.recorder import Recorder
from pretrain.run import Run


@dataclass(frozen=True)
class RunContext:
    """The objects that a worker keeps from its start to its end, across rewinds."""

    run: Run
    device: torch.device
    recorder: Recorder
    watchdog: Watchdog
    stop: StopRequest
    corpus: PreparedCorpus
    corpora: Sequence[WeightedCorpus]
    """The corpora that training mixes, usually with `corpus` among them."""
    identity: RunIdentity
    evaluator: Evaluator
    own_time: OwnTime

    @classmethod
    def open(
        cls, run: Run, device: torch.device, recorder: Recorder, watchdog: Watchdog, stop: StopRequest
    ) -> "RunContext":
        """Open the corpora; collective. Raises UserError for one that cannot be used."""
        config = run.config
        corpus, corpora = agreed(lambda: _opened(run))
        evaluator = Evaluator(
            config.validation,
            corpus,
            config.lanes,
            config.segment_tokens,
            config.micro_batch_lanes,
            device,
            watchdog.tick,
        )
        identity = run.identity(corpora)
        own_time = OwnTime(config.health.straggler_every_steps, recorder)
        return cls(run, device, recorder, watchdog, stop, corpus, corpora, identity, evaluator, own_time)


def _opened(run: Run) -> tuple[PreparedCorpus, list[WeightedCorpus]]:
    """Open the run's own corpus and all that are mixed; for one worker, since each open reads all shards' indexes."""
    corpus = open_prepared(run.prep_folder)
    return corpus, open_corpora(corpus, run.config.data)
