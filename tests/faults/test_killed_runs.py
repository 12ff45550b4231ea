"""kill -9 of the whole process group in every stage, then the same command."""

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from cluster.journal import read_journal
from cluster.storage import sha256_file
from tests.integration.smoke_run import command, copy_corpus, only, run

_PATIENCE_S = 200
_MORE_STEPS = "pretrain.num_steps=60"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_corpus(tmp_path_factory.mktemp("corpus"))


def kill_when(arguments: list[str], reached: Callable[[], bool], log: Path) -> None:
    """Start the command in a process group of its own and kill it all once `reached`."""
    with log.open("ab") as output:
        process = subprocess.Popen(arguments, start_new_session=True, stdout=output, stderr=output)
    deadline_s = time.monotonic() + _PATIENCE_S
    while not reached():
        assert process.poll() is None, f"ended before it could be killed:\n{log.read_text()}"
        assert time.monotonic() < deadline_s, f"never got there:\n{log.read_text()}"
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.slow
def test_killed_in_every_stage_it_ends_like_an_untouched_run(corpus: Path, tmp_path: Path) -> None:
    untouched, out, log = tmp_path / "untouched", tmp_path / "killed", tmp_path / "log"
    run(command("pretrain", untouched, corpus, _MORE_STEPS))
    arguments = command("run", out, corpus, _MORE_STEPS)

    def steps_done() -> int:
        journals = list(out.glob("pretrain-*/journal.jsonl"))
        return max((record.step or 0 for path in journals for record in read_journal(path)), default=0)

    kill_when(arguments, lambda: any(out.glob("prep-*/work/*")), log)
    kill_when(arguments, lambda: steps_done() >= 14, log)
    for task in ("completion", "search"):
        in_training = f"{task}-*/scratch/seed-0/journal.jsonl"
        kill_when(arguments, lambda in_training=in_training: any(out.glob(in_training)), log)
    printed = run(arguments).stdout

    assert "pretrain: skipped" in printed
    for name in ("shards/train-00000.tar", "tokenizer.json", "ledger.parquet"):
        killed, whole = (only(folder, "prep-*") / name for folder in (out, untouched))
        assert sha256_file(killed) == sha256_file(whole), name
    weights = "pretrain-*/model/model.safetensors"
    assert sha256_file(only(out, weights)) == sha256_file(only(untouched, weights))
    journal = read_journal(only(out, "pretrain-*/journal.jsonl"))
    assert any("resuming from checkpoint" in record.text for record in journal)
    assert (out / "report.html").exists()


@pytest.mark.slow
def test_killed_while_mlflow_s_store_is_made_the_same_command_works(corpus: Path, tmp_path: Path) -> None:
    """Sooner and later in MLflow's migration; tests/unit/cluster/test_sqlite_store.py kills at chosen statements."""
    out, log = tmp_path / "run", tmp_path / "log"
    arguments = command("prep", out, corpus)
    for num_bytes in (1, 300_000, 600_000):

        def is_so_far(num_bytes: int = num_bytes) -> bool:
            return any(path.stat().st_size >= num_bytes for path in out.glob(".mlflow.db.*.tmp"))

        kill_when(arguments, is_so_far, log)
        assert not (out / "mlflow.db").exists()
    assert "prep: finished" in run(arguments).stdout
    assert not list(out.glob(".mlflow.db.*"))
    with closing(sqlite3.connect(out / "mlflow.db")) as store:
        assert store.execute("select count(*) from runs where status = 'FINISHED'").fetchone() == (2,)


@pytest.mark.slow
def test_a_killed_worker_is_restarted_from_the_last_checkpoint(corpus: Path, tmp_path: Path) -> None:
    """Ray Train brings the workers back by itself; the command the user gave just ends well."""
    out, log = tmp_path / "run", tmp_path / "log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            command("pretrain", out, corpus, _MORE_STEPS),
            start_new_session=True,
            stdout=output,
            stderr=output,
        )
    deadline_s = time.monotonic() + _PATIENCE_S
    while not any(out.glob("pretrain-*/checkpoints/step-*")):
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline_s, log.read_text()
        time.sleep(0.02)
    workers = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if "RayTrainWorker" in " ".join(child.cmdline())
    ]
    assert len(workers) == 2
    workers[1].kill()
    assert process.wait(timeout=_PATIENCE_S) == 0, log.read_text()
    starts = [
        record.text
        for record in read_journal(only(out, "pretrain-*/journal.jsonl"))
        if record.kind == "event" and record.name == "start"
    ]
    assert "starting at step 0" in starts[0]
    assert any("resuming from checkpoint" in text for text in starts[1:])
    assert only(out, "pretrain-*/model/model.safetensors").exists()
