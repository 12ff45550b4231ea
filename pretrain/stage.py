"""The pretraining stage: Ray Train starts the workers, this process shows how far they are."""

import gc
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.errors import RetryableError, UserError, first_line
from cluster.follow import followed
from cluster.journal import JournalRecord, read_journal
from cluster.process_group import choose_backend
from cluster.reporter import Bar, Reporter
from cluster.storage import read_json
from data_prep.prepared import open_prepared
from pretrain.config import PretrainConfig
from pretrain.goodput.ledger import goodput
from pretrain.health.stop import STOP_NAME, until_done_or_stopped
from pretrain.health.watchdog import HANG_NAME
from pretrain.run import RESULT_NAME, Run
from pretrain.worker import ERROR_NAME, work

_MAX_START_FAILURES = 3


def run_pretrain(
    config: PretrainConfig,
    seed: int,
    prep_folder: Path,
    folder: Path,
    reporter: Reporter,
    accepted: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Pretrain to `config.num_steps` in `folder`, going on from its newest valid checkpoint; returns the summary.

    Needs an open Ray session. Leaves `journal.jsonl`, `checkpoints/`, `model/` and `result.json`. Raises UserError
    for damaged data, damaged checkpoints, losses that stay not finite, or workers that failed more often than
    `max_worker_restarts`, RetryableError when workers hang, KeyboardInterrupt when it was stopped: then the state
    after the last step is committed. `accepted`: config keys that may differ from those of the checkpoint.
    """
    open_prepared(prep_folder)
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(config, seed, prep_folder.absolute(), folder.absolute(), accepted)
    if not (folder / RESULT_NAME).exists():
        with _shown(folder / "journal.jsonl", config, reporter):
            _fit(run, reporter)
    return _summary(folder)


def _fit(run: Run, reporter: Reporter) -> None:
    """Train with Ray's workers. UserError and RetryableError say what went wrong; KeyboardInterrupt: stopped."""
    from ray.exceptions import RayError
    from ray.train.v2.api.exceptions import TrainingFailedError

    backend = choose_backend(run.config.num_workers)
    for name in (ERROR_NAME, HANG_NAME, STOP_NAME):
        (run.folder / name).unlink(missing_ok=True)
    try:
        until_done_or_stopped(_trainer(run, backend).fit, run.folder / STOP_NAME, reporter)
    except TrainingFailedError as error:
        if (run.folder / ERROR_NAME).exists():
            raise UserError(read_json(run.folder / ERROR_NAME)["message"]) from error
        if (run.folder / HANG_NAME).exists():
            raise RetryableError(
                f"{read_json(run.folder / HANG_NAME)['text']}; run the same command again"
            ) from error
        raise UserError(
            f"pretraining workers failed ({_last_line(error)}): see {run.folder.parent / 'logs'}, then run the same "
            "command again to go on from the last checkpoint"
        ) from error
    except RayError as error:
        raise RetryableError(
            f"Ray lost a process of its own ({first_line(error)}); run the same command again"
        ) from error
    if not (run.folder / RESULT_NAME).exists():
        # A handle of Ray's that is dropped after its shutdown ends the process with another exit code.
        gc.collect()
        raise KeyboardInterrupt


def _trainer(run: Run, backend: str) -> Any:
    import ray.train
    from ray.train.torch import TorchConfig, TorchTrainer

    return TorchTrainer(
        work,
        train_loop_config={"run": run, "backend": backend, "log_folder": str(run.folder.parent / "logs")},
        torch_config=TorchConfig(backend=backend),
        scaling_config=ray.train.ScalingConfig(num_workers=run.config.num_workers, use_gpu=backend == "nccl"),
        run_config=ray.train.RunConfig(
            name=".ray-train",
            storage_path=str(run.folder),
            failure_config=ray.train.FailureConfig(
                max_failures=run.config.max_worker_restarts,
                # Ray counts workers that cannot start here, and by default tries for ever without a word.
                controller_failure_limit=_MAX_START_FAILURES,
            ),
        ),
    )


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


@contextmanager
def _shown(journal: Path, config: PretrainConfig, reporter: Reporter) -> Iterator[None]:
    """Follow the journal on the terminal until the block ends; what an earlier attempt wrote has been shown."""
    with (
        reporter.bar("pretrain", config.num_steps * config.tokens_per_step, "tokens") as bar,
        followed(journal, lambda record: _show(record, config, bar, reporter), skip_existing=True),
    ):
        yield


def _show(record: JournalRecord, config: PretrainConfig, bar: Bar, reporter: Reporter) -> None:
    if record.kind == "event":
        (reporter.warn if record.level == "warning" else reporter.line)(f"pretrain: {record.text}")
        return
    metrics = record.metrics
    bar.update(metrics["tokens"], f"loss {metrics['loss']:.2f}")
    if "validation_bits_per_byte" in metrics:
        reporter.line(
            f"pretrain: step {record.step} of {config.num_steps}, loss {metrics['loss']:.3f}, "
            f"validation {metrics['validation_bits_per_byte']:.3f} bits per byte"
        )


def _summary(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = read_json(folder / RESULT_NAME)
    records = read_journal(folder / "journal.jsonl")
    steps = [record for record in records if record.kind == "step"]
    validation = result["validation"]
    unigram = validation["unigram_bits_per_byte"]
    return result | {
        "final_loss": steps[-1].metrics["loss"],
        "tokens_per_s_median": statistics.median(record.metrics["tokens_per_s"] for record in steps),
        "beats_unigram_by": 1.0 - validation["model_bits_per_byte"] / unigram,
        "beats_bigram": validation["model_bits_per_byte"] < validation["bigram_bits_per_byte"],
        "resumed_from": _resumed_from(records),
        # Of a finished run: its time ends with its journal.
        "goodput": goodput(records, None, records[-1].time_s).summary(),
    }


def _resumed_from(records: list[JournalRecord]) -> list[int]:
    """The steps at which the run went on after an interruption."""
    starts = [record.facts for record in records if record.name in ("start", "again")]
    return [facts["step"] for facts in starts if facts["commit"] is not None]
