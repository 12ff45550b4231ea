"""The pretraining stage: Ray Train starts the workers, this process shows their progress."""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cluster import metrics_export
from cluster.errors import UserError
from cluster.follow import follow_journal
from cluster.journal import JOURNAL_NAME, JournalRecord, JournalTail, read_journal
from cluster.reporter import Bar, Reporter
from cluster.resources import ResourcesConfig
from cluster.storage import read_document, write_document
from data_prep.finished.prepared import open_prepared
from pretrain.config import PretrainConfig
from pretrain.figures import VALIDATION_IN_TRAINING, bits_text, figures_of
from pretrain.files import PretrainFiles
from pretrain.goodput import LiveGoodput
from pretrain.journal.events import Start, event_of
from pretrain.ray_workers import run_workers
from pretrain.run import Run
from pretrain.worker import work
from pretrain.workers import Workers

_AFTER_WATCHDOG_S = 60
_GOODPUT_EVERY_S = 5.0
_DEFAULT_RESOURCES = ResourcesConfig()
_RESULT_ADVICE = "remove it and run the same command again, which evaluates the model again"


def run_pretrain(
    config: PretrainConfig,
    seed: int,
    prep_folder: Path,
    folder: Path,
    reporter: Reporter,
    accepted: frozenset[str] = frozenset(),
    resources: ResourcesConfig = _DEFAULT_RESOURCES,
) -> dict[str, Any]:
    """Pretrain to `config.num_steps` in `folder`, from its newest valid checkpoint on; return the summary.

    Needs an open Ray session. Leaves `journal.jsonl`, `checkpoints/`, `model/` and `result.json`. Raises UserError
    for damaged data, damaged checkpoints, losses that stay not finite, or workers that failed more often than
    `max_worker_restarts` without a new checkpoint, RetryableError when workers hang, KeyboardInterrupt when it was
    stopped: then the state after the last step is saved. `accepted`: config keys that may differ from those of
    the checkpoint.
    """
    open_prepared(prep_folder)
    folder.mkdir(parents=True, exist_ok=True)
    run = _fitting_memory(Run(config, seed, prep_folder.absolute(), folder.absolute(), accepted))
    write_document(folder / PretrainFiles.PREP, {"folder": run.prep_folder.name})
    if not (folder / PretrainFiles.RESULT).exists():
        with _shown(folder / JOURNAL_NAME, config, reporter), _exported_goodput(folder / JOURNAL_NAME):
            run_workers(_workers(run, resources, reporter), work, {"run": run}, reporter)
            if not (run.folder / PretrainFiles.RESULT).exists():
                raise KeyboardInterrupt  # a stop was requested
    return summary_of(folder)


def _workers(run: Run, resources: ResourcesConfig, reporter: Reporter) -> Workers:
    """Return the workers; they wait for each other longer than the watchdog, which can say which one hangs."""

    def with_less_memory(settings: dict[str, Any]) -> dict[str, Any] | None:
        before: Run = settings["run"]
        lanes = before.config.micro_batch_lanes
        if lanes % 2 or before.config.deterministic:  # whose bits depend on the micro-batches
            return None
        path = run.folder / PretrainFiles.MICRO_BATCH
        given = read_document(path)["given"] if path.exists() else lanes
        write_document(path, {"given": given, "lanes": lanes // 2})
        reporter.warn(
            f"pretraining ran out of memory: micro-batches have {lanes // 2} lanes instead of {lanes} from here on, "
            "the batch per step stays the same"
        )
        return {**settings, "run": _fitting_memory(before)}

    config = run.config
    collective_timeout_s = max(
        Workers.collective_timeout_s, math.ceil(config.health.hang_timeout_s) + _AFTER_WATCHDOG_S
    )
    return Workers(
        "pretraining",
        config.worker_counts,
        config.max_worker_restarts,
        run.folder,
        resources,
        collective_timeout_s,
        with_less_memory,
    )


def _fitting_memory(run: Run) -> Run:
    """Return the run with the smaller micro-batches that its folder names, if memory ran out before.

    Another value of `micro_batch_lanes` in the config ends that.
    """
    path = run.folder / PretrainFiles.MICRO_BATCH
    if not path.exists():
        return run
    smaller = read_document(path)
    if run.config.micro_batch_lanes not in (smaller["given"], 2 * smaller["lanes"]):
        path.unlink()
        return run
    config = run.config.model_copy(update={"micro_batch_lanes": smaller["lanes"]})
    return replace(run, config=config, accepted=run.accepted | {"micro_batch_lanes"})


@contextmanager
def _shown(journal: Path, config: PretrainConfig, reporter: Reporter) -> Iterator[None]:
    """Follow the journal on the terminal until the block ends, without the records of earlier attempts."""
    with (
        reporter.bar("pretrain", config.num_steps * config.tokens_per_step, "tokens") as bar,
        follow_journal(journal, lambda record: _show(record, config, bar, reporter), skip_existing=True),
    ):
        yield


@contextmanager
def _exported_goodput(journal: Path) -> Iterator[None]:
    """Export the goodput until the block ends, also while no worker lives: then it falls."""
    if not metrics_export.is_collected():
        yield
        return
    tail, live, ended = JournalTail(journal), LiveGoodput(lambda: read_journal(journal)), threading.Event()

    def export() -> None:
        with suppress(OSError, UserError):  # a damaged journal is reported where it is needed
            while not ended.wait(_GOODPUT_EVERY_S):
                live.take(tail.new_records())
                if (share := live.share()) is not None:
                    metrics_export.show(metrics_export.GOODPUT, share)

    thread = threading.Thread(target=export, name="goodput", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _show(record: JournalRecord, config: PretrainConfig, bar: Bar, reporter: Reporter) -> None:
    if record.kind == "event":
        (reporter.warn if record.level == "warning" else reporter.line)(f"pretrain: {record.text}")
        return
    metrics = record.metrics
    bar.update(metrics["tokens"], f"loss {metrics['loss']:.2f}")
    if "validation_bits_per_byte" in metrics:
        reporter.line(
            f"pretrain: step {record.step} of {config.num_steps}, loss {metrics['loss']:.3f}, "
            f"{VALIDATION_IN_TRAINING} {bits_text(metrics['validation_bits_per_byte'])}"
        )


def summary_of(folder: Path) -> dict[str, Any]:
    """Return the figures of a finished pretraining, and the steps from which it resumed."""
    result: dict[str, Any] = read_document(folder / PretrainFiles.RESULT, _RESULT_ADVICE)
    records = read_journal(folder / JOURNAL_NAME)
    starts = [event for record in records if isinstance(event := event_of(record), Start)]
    validation = result["validation"]
    unigram = validation["unigram_bits_per_byte"]
    return result | {
        "beats_unigram_by": 1.0 - validation["model_bits_per_byte"] / unigram,
        "beats_bigram": validation["model_bits_per_byte"] < validation["bigram_bits_per_byte"],
        "resumed_from": [start.step for start in starts if start.checkpoint is not None],
        # The time of a finished run ends with its journal.
        **figures_of(records, None, records[-1].time_s if records else 0.0).summary(),
    }
