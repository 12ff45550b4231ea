"""The command is stopped, and resumes with other workers: one run, with every token consumed once."""

import json
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster.journal import read_journal
from tests.integration.smoke_run import command, copy_corpus, only, run

_PATIENCE_S = 240
_MORE_STEPS = ("pretrain.num_steps=300", "pretrain.checkpoint.every_steps=1000")


def steps_done(out: Path) -> int:
    journals = list(out.glob("pretrain-*/journal.jsonl"))
    return max((record.step or 0 for path in journals for record in read_journal(path)), default=0)


@pytest.mark.slow
def test_sigterm_saves_and_another_number_of_workers_and_zero_stage_resumes(tmp_path: Path) -> None:
    corpus, out = copy_corpus(tmp_path / "corpus"), tmp_path / "out"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            command("pretrain", out, corpus, *_MORE_STEPS), start_new_session=True, stdout=log, stderr=log
        )
    deadline_s = time.monotonic() + _PATIENCE_S
    while steps_done(out) < 10:
        assert process.poll() is None, (tmp_path / "log").read_text()
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    sent_s = time.time()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 130, (tmp_path / "log").read_text()

    journal = only(out, "pretrain-*") / "journal.jsonl"
    (checkpoint,) = (record for record in read_journal(journal) if record.name == "checkpoint")
    assert checkpoint.facts["reason"] == "stop"
    assert checkpoint.time_s - sent_s < 3.0
    stopped_at = checkpoint.facts["step"]

    run(command("pretrain", out, corpus, *_MORE_STEPS, "pretrain.num_workers=1", "pretrain.zero_stage=3"))
    second = [record for record in read_journal(journal) if record.name == "start"][-1]
    assert (second.facts["step"], second.facts["world_size"], second.facts["zero_stage"]) == (
        stopped_at,
        1,
        3,
    )
    reported = run([sys.executable, "-m", "pipeline.cli", "audit", str(out), "--read", "--json"]).stdout
    books = json.loads(reported)
    assert books["balances"]
    assert (books["num_steps"], books["num_remade_steps"], books["num_attempts"]) == (300, 0, 2)
    with sqlite3.connect(out / "mlflow.db") as store:
        (pretrain,) = store.execute("select run_uuid, status from runs where name = 'pretrain'").fetchall()
        logged = store.execute(
            "select step from metrics where key = 'loss' and run_uuid = ? order by step", (pretrain[0],)
        ).fetchall()
    store.close()
    assert pretrain[1] == "FINISHED"
    assert [step for (step,) in logged] == list(range(1, 301))
