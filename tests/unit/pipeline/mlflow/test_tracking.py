from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.errors import UserError
from cluster.journal import Journal
from pipeline.mlflow.tracking import Tracking, flat_params


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tracking")


@pytest.fixture(scope="module")
def tracking(out: Path, new_store: Callable[[Path], str]) -> Tracking:
    return Tracking(new_store(out), out / "mlartifacts")


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


def test_names_that_mlflow_refuses_are_spelt_out(tracking: Tracking) -> None:
    run_id = tracking.parent_run("demo", "key-names", {})
    tracking.log_metrics(run_id, {"languages.C++.num_files": 3.0, "languages.C#.num_files": 4.0})
    assert history(tracking, run_id, "languages.Cpp.num_files") == [(0, 3.0)]
    assert history(tracking, run_id, "languages.Csharp.num_files") == [(0, 4.0)]


def test_feed_sends_each_step_once_over_a_resume(tracking: Tracking, tmp_path: Path) -> None:
    run_id = tracking.parent_run("demo", "key-resume", {})
    journal = Journal(tmp_path / "journal.jsonl")
    feed = tracking.feed(run_id, tmp_path / "journal.jsonl")
    assert feed.send_new() == 0
    for step in range(1, 6):
        journal.step(step, {"loss": float(step)})
    assert feed.send_new() == 5
    # Killed at step 8, resumed from 3: what was first recorded of steps 4 to 8 counts, sent or not.
    for step in range(6, 9):
        journal.step(step, {"loss": float(step)})
    for step in range(4, 10):
        journal.step(step, {"loss": step + 0.5})
    journal.step(9, {"val": 1.0})
    resumed_feed = tracking.feed(run_id, tmp_path / "journal.jsonl")
    assert resumed_feed.send_new() == 5
    assert resumed_feed.send_new() == 0
    sent = [(step, float(step)) for step in range(1, 6)] + [(6, 6.0), (7, 7.0), (8, 8.0), (9, 9.5)]
    assert history(tracking, run_id, "loss") == sent
    assert history(tracking, run_id, "val") == [(9, 1.0)]


def test_feed_keeps_what_was_sent_before_accepted_changes(tracking: Tracking, tmp_path: Path) -> None:
    run_id = tracking.parent_run("demo", "key-accepted", {})
    journal = Journal(tmp_path / "journal.jsonl")
    for step in range(1, 6):
        journal.step(step, {"loss": float(step)})
    feed = tracking.feed(run_id, tmp_path / "journal.jsonl")
    assert feed.send_new() == 5
    journal.event("accepted", name="accepted", key="optimizer")
    journal.event("start", name="start", step=3)
    for step in range(4, 8):
        journal.step(step, {"loss": step + 0.5})
    assert feed.send_new() == 2
    assert tracking.feed(run_id, tmp_path / "journal.jsonl").send_new() == 0
    sent = [(step, float(step)) for step in range(1, 6)] + [(6, 6.5), (7, 7.5)]
    assert history(tracking, run_id, "loss") == sent


def test_feed_that_could_not_send_before_accepted_changes_sends_the_steps_made_under_them(
    tracking: Tracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = tracking.parent_run("demo", "key-accepted-late", {})
    journal = Journal(tmp_path / "journal.jsonl")
    for step in range(1, 6):
        journal.step(step, {"loss": float(step)})
    feed = tracking.feed(run_id, tmp_path / "journal.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(feed._client, "get_run", _fail)
        with pytest.raises(ConnectionError):
            feed.send_new()
    journal.event("accepted", name="accepted", key="optimizer")
    journal.event("start", name="start", step=3)
    for step in range(4, 8):
        journal.step(step, {"loss": step + 0.5})
    assert feed.send_new() == 7
    sent = [(step, float(step)) for step in range(1, 4)] + [(step, step + 0.5) for step in range(4, 8)]
    assert history(tracking, run_id, "loss") == sent


def _fail(*_arguments: object) -> None:
    raise ConnectionError("the store is gone")


def test_runs_of_a_dead_process_are_ended_with_all_below_them(tracking: Tracking) -> None:
    parent = tracking.parent_run("demo", "key-dead", {})
    child = tracking.child_run(parent, "completion", "key-dead-child", {})
    grandchild = tracking.child_run(child, "completion-arm", "key-dead-arm", {})
    finished = tracking.child_run(parent, "prep", "key-dead-prep", {})
    tracking.finish(finished, "FINISHED")
    other = tracking.parent_run("other", "key-alive", {})
    assert tracking.end_dead(parent) == 3
    assert tracking.end_dead(parent) == 0
    status = {run_id: tracking._client.get_run(run_id).info.status for run_id in (parent, child, grandchild)}
    assert set(status.values()) == {"KILLED"}
    assert tracking._client.get_run(finished).info.status == "FINISHED"
    assert tracking._client.get_run(other).info.status == "RUNNING"
    assert tracking.end_dead("0" * 32) == 0


def test_a_known_run_continues_although_its_config_was_changed(tracking: Tracking) -> None:
    first = tracking.parent_run("demo", "key-before", {"rate": 0.1, "seed": 1})
    again = tracking.parent_run("demo", "key-after", {"rate": 0.2, "seed": 1, "new": 3}, first)
    assert again == first
    run = tracking._client.get_run(first)
    assert run.data.params == {"rate": "0.1", "seed": "1", "new": "3"}
    assert run.data.tags["permcode.changed.rate"] == "0.2"
    assert "permcode.changed.seed" not in run.data.tags
    assert tracking.parent_run("demo", "key-after", {}, "0" * 32) != first


def test_a_name_that_the_store_refuses_does_not_stop_other_metrics(
    tracking: Tracking, tmp_path: Path
) -> None:
    run_id = tracking.parent_run("demo", "key-names", {})
    journal = Journal(tmp_path / "journal.jsonl")
    journal.step(1, {"bits of C++": 1.0, "loss": 2.0})
    assert tracking.feed(run_id, tmp_path / "journal.jsonl").send_new() == 2
    assert history(tracking, run_id, "bits of C__") == [(1, 1.0)]
    assert history(tracking, run_id, "loss") == [(1, 2.0)]


def test_what_a_failed_call_may_or_may_not_have_stored_stands_once(
    tracking: Tracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = tracking.parent_run("demo", "key-lost-answer", {})
    journal = Journal(tmp_path / "journal.jsonl")
    for step in range(1, 6):
        journal.step(step, {"loss": float(step)})
    feed = tracking.feed(run_id, tmp_path / "journal.jsonl")
    log_batch = tracking._client.log_batch

    def takes_and_breaks(*arguments: object, **named: object) -> None:
        log_batch(*arguments, **named)
        raise ConnectionError("the answer got lost")

    with monkeypatch.context() as patch:
        patch.setattr(tracking._client, "log_batch", takes_and_breaks)
        with pytest.raises(ConnectionError):
            feed.send_new()
    assert feed.send_new() == 0
    journal.step(6, {"loss": 6.0})
    assert feed.send_new() == 1
    assert history(tracking, run_id, "loss") == [(step, float(step)) for step in range(1, 7)]


def test_parameters_are_flattened_and_cut() -> None:
    flat = flat_params({"a": {"b": {"c": 1}}, "list": [1, "x"], "text": "y" * 10_000, "none": None})
    assert flat == {"a.b.c": "1", "list": '[1, "x"]', "text": "y" * 6000, "none": "null"}


def test_an_unusable_store_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("this is no database" * 100)
    with pytest.raises(UserError, match=r"MLflow store sqlite:.*mlflow\.db cannot be used"):
        Tracking(f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "mlartifacts")


def test_deleted_experiment_is_named(tmp_path: Path, new_store: Callable[[Path], str]) -> None:
    uri = new_store(tmp_path)
    tracking = Tracking(uri, tmp_path / "mlartifacts", experiment="mine")
    tracking._client.delete_experiment(tracking._experiment_id)
    with pytest.raises(UserError, match=r"'mine' .* was deleted: restore it"):
        Tracking(uri, tmp_path / "mlartifacts", experiment="mine")
