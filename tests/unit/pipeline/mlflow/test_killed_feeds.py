"""MLflow's database, read by SQL, against the journal, read by a few plain lines, after kills of the feed."""

import json
import math
import multiprocessing
import random
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.journal import Journal
from pipeline.mlflow.tracking import Tracking
from tests.unit.pipeline.mlflow.feeding import feed_on

_PATIENCE_STEPS = 3
_COMMIT_EVERY = 8


class Training:
    """Writes a journal like that of a training that is killed, resumed and, if configured, rewound."""

    def __init__(self, path: Path, draw: random.Random, rewinds: bool) -> None:
        self.journal, self.draw, self.rewinds = Journal(path), draw, rewinds
        self.step = self.checkpoint = 0
        patience_steps = _PATIENCE_STEPS if rewinds else None
        self.journal.event("it starts", name="start", step=0, rewind_patience_steps=patience_steps)

    def go_on(self, num_records: int) -> None:
        for _ in range(num_records):
            self.step += 1
            loss = math.nan if self.draw.random() < 0.02 else self.draw.random()
            self.journal.step(self.step, {"loss": loss, "rate": self.step / 7})
            if self.step % _COMMIT_EVERY == 0:
                self.journal.step(self.step, {"validation": self.draw.random()})
                self.checkpoint = self.step
                self.journal.event("a commit", name="checkpoint", step=self.step, reason="cadence")
            elif (
                self.rewinds and self.draw.random() < 0.05 and self.step - self.checkpoint >= _PATIENCE_STEPS
            ):
                self.journal.event("back", name="rewind", from_step=self.step, to_step=self.checkpoint)
                self.step = self.checkpoint
            elif self.draw.random() < 0.05:
                self.step = self.checkpoint  # killed and resumed

    def end(self) -> None:
        self.journal.event("the end", name="end", step=self.step)
        self.journal.close()


def reported_by_journal(path: Path) -> dict[tuple[str, int], float]:
    """What counts: the first word on each metric of a step, unless a rewind takes it back."""
    found: dict[tuple[str, int], float] = {}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if record.get("name") == "rewind":
            found = {key: value for key, value in found.items() if key[1] <= record["facts"]["to_step"]}
        for name, value in record.get("metrics", {}).items():
            found.setdefault((name, record["step"]), value)
    return found


def reported_by_database(path: Path, run_id: str) -> list[tuple[tuple[str, int], float]]:
    with sqlite3.connect(path) as store:
        rows = store.execute("select key, step, value, is_nan from metrics where run_uuid = ?", (run_id,))
        found = [((key, step), math.nan if is_nan else value) for key, step, value, is_nan in rows]
    store.close()
    return found


def wait_for_rows(database: Path, run_id: str, num_rows: int) -> None:
    """Or until the feed has nothing more to send, as where rewinds hold points back."""
    deadline_s = time.monotonic() + 2
    while len(reported_by_database(database, run_id)) < num_rows and time.monotonic() < deadline_s:
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("rewinds", "num_kills"), [(False, 4), (True, 4), pytest.param(True, 40, marks=pytest.mark.slow)]
)
def test_after_any_kills_each_metric_of_each_step_is_stored_once_as_in_the_journal(
    tmp_path: Path, new_store: Callable[[Path], str], rewinds: bool, num_kills: int
) -> None:
    draw = random.Random(17)
    store, path, database = new_store(tmp_path), tmp_path / "journal.jsonl", tmp_path / "mlflow.db"
    tracking = Tracking(store, tmp_path)
    run_id = tracking.parent_run("run", "key", {})
    training = Training(path, draw, rewinds)
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(
        ["tests.unit.pipeline.mlflow.feeding", "mlflow.store.tracking.sqlalchemy_store"]
    )
    num_stored = [0]
    for _ in range(num_kills):
        training.go_on(60)
        ready, sender = processes.Pipe(duplex=False)
        feeder = processes.Process(target=feed_on, args=(store, run_id, str(path), sender))
        feeder.start()
        assert ready.recv() == "feeding"
        wait_for_rows(database, run_id, num_stored[-1] + draw.randrange(1, 80))
        feeder.kill()
        feeder.join()
        num_stored.append(len(reported_by_database(database, run_id)))
    training.end()
    assert len(set(num_stored)) > 2, f"the feeds were not killed in the middle: {num_stored}"
    tracking.feed(run_id, path).send_new()

    stored, expected = reported_by_database(database, run_id), reported_by_journal(path)
    assert len(stored) == len(dict(stored)) == len(expected)
    assert dict(stored) == pytest.approx(expected, nan_ok=True, abs=0, rel=0)
