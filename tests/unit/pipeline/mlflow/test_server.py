"""A real tracking server that is killed and comes back while a training writes its journal."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.journal import Journal
from pipeline.folder.graph import Stage, plan
from pipeline.mlflow.parent_run import ParentInMlflow
from pipeline.mlflow.run_logger import MlflowLogger
from tests.unit.pipeline.recording_reporter import RecordingReporter
from tests.unit.pipeline.toy_graph import record_of

pytestmark = pytest.mark.slow
_PATIENCE_S = 120


class Server:
    """`mlflow server` on an SQLite file."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.folder, self.uri = folder, f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--backend-store-uri", f"sqlite:///{self.folder}/server.db", "--workers", "1"]
        command += ["--artifacts-destination", str(self.folder / "artifacts")]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, start_new_session=True, stdout=log, stderr=log)
        deadline_s = time.monotonic() + _PATIENCE_S
        while not self._answers():
            assert time.monotonic() < deadline_s, (self.folder / "server.log").read_text()
            time.sleep(0.1)

    def kill(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def _answers(self) -> bool:
        try:
            return bool(urllib.request.urlopen(f"{self.uri}/health", timeout=1).status == 200)
        except (urllib.error.URLError, OSError):
            return False


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.start()
    yield server
    server.kill()


def test_a_server_that_is_killed_and_comes_back_delays_no_step_and_has_each_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.mlflow.run_logger.INTERVAL_S", 0.1)
    stage = Stage("trained", {}, lambda _context: {}, needs_ray=False, journals={"": "journal.jsonl"})
    (step,) = plan([stage], tmp_path / "out")
    step.folder.mkdir(parents=True)
    journal, reporter = Journal(step.folder / "journal.jsonl"), RecordingReporter()
    parent = ParentInMlflow({"store": server.uri, "experiment": "test"}, {"seed": 1}, tmp_path / "out")
    run = MlflowLogger(parent, reporter)
    slowest_s, number = 0.0, 0

    def make_steps(seconds: float) -> None:
        nonlocal slowest_s, number
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            number += 1
            began_s = time.monotonic()
            journal.step(number, {"loss": 1.0 / number, "rate": float(number)})
            slowest_s = max(slowest_s, time.monotonic() - began_s)
            time.sleep(0.005)

    with run.stage(step):
        make_steps(3.0)
        for _ in range(2):
            server.kill()
            make_steps(2.0)
            server.start()
            make_steps(3.0)
        journal.close()
    run.submit(step, record_of(step, {"gain": 1.0}))
    run.close("FINISHED")

    assert slowest_s < 0.5
    assert [line for line in reporter.warnings if "the run continues" in line]
    assert not [line for line in reporter.warnings if "not everything could be logged" in line]
    with sqlite3.connect(tmp_path / "server.db") as store:
        for metric in ("loss", "rate"):
            rows = list(
                store.execute("select step, value from metrics where key = ? order by step", (metric,))
            )
            sent = [(one, 1.0 / one if metric == "loss" else float(one)) for one in range(1, number + 1)]
            assert rows == sent
        assert {status for (status,) in store.execute("select status from runs")} == {"FINISHED"}
        assert list(store.execute("select count(*) from runs")) == [(2,)]
        assert list(store.execute("select key, value from params")) == [("seed", "1")]
    store.close()
