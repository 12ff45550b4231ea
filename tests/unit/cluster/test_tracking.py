import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster.errors import UserError
from cluster.journal import Journal
from cluster.tracking import Tracking, flat_params

FEEDER = """
import sys
from pathlib import Path
import cluster.journal_feed
from cluster.tracking import Tracking
cluster.journal_feed._BATCH_METRICS = 7  # many transactions, so that a kill lands between or in them
out = Path(sys.argv[1])
tracking = Tracking(f"sqlite:///{out}/mlflow.db", out / "mlartifacts")
feed = tracking.feed(sys.argv[2], out / "journal.jsonl")
print("feeding", flush=True)
feed.pump()
print("done", flush=True)
"""


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tracking")


@pytest.fixture(scope="module")
def tracking(out: Path) -> Tracking:
    return Tracking(f"sqlite:///{out}/mlflow.db", out / "mlartifacts")


def history(tracking: Tracking, run_id: str, metric: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in tracking._client.get_metric_history(run_id, metric)]


def test_run_is_continued_by_its_key(tracking: Tracking) -> None:
    first = tracking.parent_run("demo", "key-continued", {"model": {"layers": 2}})
    tracking.finish(first, "FAILED")
    again = tracking.parent_run("demo", "key-continued", {"model": {"layers": 3, "heads": 4}})
    assert again == first
    run = tracking._client.get_run(again)
    assert run.info.status == "RUNNING"
    assert run.data.params == {"model.layers": "2", "model.heads": "4"}
    assert tracking.parent_run("demo", "key-other", {}) != first


def test_child_is_below_its_parent_and_holds_artifacts(tracking: Tracking, out: Path, tmp_path: Path) -> None:
    parent = tracking.parent_run("demo", "key-parent", {})
    child = tracking.child_run(parent, "prep", "key-child", {"seed": 1})
    run = tracking._client.get_run(child)
    assert run.data.tags["mlflow.parentRunId"] == parent
    assert run.info.run_name == "prep"
    report = tmp_path / "report.html"
    report.write_text("<html>")
    for _ in range(2):
        tracking.log_artifact(child, report, "report")
    (found,) = out.glob("mlartifacts/*/artifacts/report/report.html")
    assert found.read_text() == "<html>"
    tracking.finish(child, "FINISHED")
    assert tracking._client.get_run(child).info.status == "FINISHED"


def test_summary_metrics_are_logged_once(tracking: Tracking) -> None:
    run_id = tracking.parent_run("demo", "key-summary", {})
    for _ in range(2):
        tracking.log_metrics(run_id, {"mrr": 0.5})
    assert history(tracking, run_id, "mrr") == [(0, 0.5)]


def test_feed_sends_each_step_once_over_a_resume(tracking: Tracking, tmp_path: Path) -> None:
    run_id = tracking.parent_run("demo", "key-resume", {})
    journal = Journal(tmp_path / "journal.jsonl")
    feed = tracking.feed(run_id, tmp_path / "journal.jsonl")
    assert feed.pump() == 0
    for step in range(1, 6):
        journal.step(step, {"loss": float(step)})
    assert feed.pump() == 5
    # Killed at step 8, resumed from 3: what was first recorded of steps 4 to 8 counts, sent or not.
    for step in range(6, 9):
        journal.step(step, {"loss": float(step)})
    for step in range(4, 10):
        journal.step(step, {"loss": step + 0.5})
    journal.step(9, {"val": 1.0})
    resumed_feed = tracking.feed(run_id, tmp_path / "journal.jsonl")
    assert resumed_feed.pump() == 5
    assert resumed_feed.pump() == 0
    sent = [(step, float(step)) for step in range(1, 6)] + [(6, 6.0), (7, 7.0), (8, 8.0), (9, 9.5)]
    assert history(tracking, run_id, "loss") == sent
    assert history(tracking, run_id, "val") == [(9, 1.0)]


def test_feed_killed_in_the_middle_loses_and_doubles_nothing(tracking: Tracking, out: Path) -> None:
    num_steps = 3000
    run_id = tracking.parent_run("demo", "key-killed", {})
    journal = Journal(out / "journal.jsonl")
    for step in range(num_steps):
        journal.step(step, {"loss": step / 2, "lr": step * 2.0})
    feeder = subprocess.Popen([sys.executable, "-c", FEEDER, str(out), run_id], stdout=subprocess.PIPE)
    assert feeder.stdout is not None
    assert feeder.stdout.readline() == b"feeding\n"
    deadline_s = time.monotonic() + 30
    while not history(tracking, run_id, "loss") and time.monotonic() < deadline_s:
        time.sleep(0.05)
    feeder.kill()
    assert feeder.stdout.read() == b"", "the feeder was done before it was killed"
    feeder.stdout.close()
    feeder.wait()
    assert 0 < len(history(tracking, run_id, "loss")) < num_steps
    tracking.feed(run_id, out / "journal.jsonl").pump()
    assert history(tracking, run_id, "loss") == [(step, step / 2) for step in range(num_steps)]
    assert history(tracking, run_id, "lr") == [(step, step * 2.0) for step in range(num_steps)]


def test_parameters_are_flattened_and_cut() -> None:
    flat = flat_params({"a": {"b": {"c": 1}}, "list": [1, "x"], "text": "y" * 10_000, "none": None})
    assert flat == {"a.b.c": "1", "list": '[1, "x"]', "text": "y" * 6000, "none": "null"}


def test_unusable_store_is_the_users_to_mend(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("this is no database" * 100)
    with pytest.raises(UserError, match=r"MLflow store sqlite:.*mlflow\.db cannot be used"):
        Tracking(f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "mlartifacts")


def test_deleted_experiment_is_named(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    tracking = Tracking(uri, tmp_path / "mlartifacts", experiment="mine")
    tracking._client.delete_experiment(tracking._experiment_id)
    with pytest.raises(UserError, match=r"'mine' .* was deleted: restore it"):
        Tracking(uri, tmp_path / "mlartifacts", experiment="mine")
