"""A thread of its own logs to MLflow: stores that are away, processes that died."""

import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster.journal import Journal
from cluster.storage import exclusive_lock
from pipeline.folder.graph import PlannedStage, Stage, plan
from pipeline.folder.layout import RunFiles
from pipeline.mlflow.parent_run import ParentInMlflow, end_dead_runs
from pipeline.mlflow.run_logger import MlflowLogger, is_logged
from pipeline.mlflow.stage_runs import StageInMlflow
from pipeline.mlflow.store import store_uri
from tests.unit.pipeline.recording_reporter import RecordingReporter
from tests.unit.pipeline.toy_graph import record_of

# MLflow's own SQLAlchemy models and its SQLite pools, not ours.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
NO_SERVER = {"store": None, "experiment": "test"}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out")


def toy_step(out: Path, name: str, patience_steps: int | None = None) -> PlannedStage:
    """A stage with a journal of three steps."""
    stage = Stage(name, {}, lambda _context: {}, needs_ray=False, journals={"": "journal.jsonl"})
    (step,) = plan([stage], out)
    step.folder.mkdir(parents=True)
    journal = Journal(step.folder / "journal.jsonl")
    journal.event("it starts", name="start", step=0, rewind_patience_steps=patience_steps)
    for number in range(1, 4):
        journal.step(number, {"loss": float(number)})
    journal.close()
    return step


def statuses(out: Path) -> dict[str, str]:
    return {found.info.run_name: found.info.status for found in _runs(out)}


def metrics(out: Path, name: str) -> dict[str, float]:
    (found,) = (found for found in _runs(out) if found.info.run_name == name)
    return dict(found.data.metrics)


def _runs(out: Path) -> Any:
    from mlflow import MlflowClient

    client = MlflowClient(store_uri(out, None))
    return client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])


def test_runs_that_a_dead_process_left_running_are_ended_by_status(out: Path) -> None:
    parent = ParentInMlflow(NO_SERVER, {}, out)
    step = toy_step(out, "first")
    parent.sync([StageInMlflow(step)], None)
    assert statuses(out) == {out.name: "RUNNING", "first": "RUNNING"}
    with exclusive_lock(out / ".lock"):
        assert end_dead_runs(out) == 0
    assert end_dead_runs(out) == 2
    assert statuses(out) == {out.name: "KILLED", "first": "KILLED"}
    assert end_dead_runs(out) == 0


def test_runs_that_a_dead_process_left_running_are_ended_by_the_next_start(out: Path) -> None:
    ParentInMlflow(NO_SERVER, {}, out).sync([StageInMlflow(toy_step(out, "of-another-key"))], None)
    again = ParentInMlflow(NO_SERVER, {"a": "changed key"}, out)
    again.connect()
    assert statuses(out) == {out.name: "RUNNING", "first": "KILLED", "of-another-key": "KILLED"}
    again.sync([], "FINISHED")
    assert statuses(out)[out.name] == "FINISHED"
    assert end_dead_runs(out) == 0


@pytest.mark.parametrize("by", ["status", "the next start"])
def test_a_run_whose_process_died_before_it_could_note_it_is_ended(
    out: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even when the folder is of another key by then."""
    from pipeline.mlflow.tracking import Tracking

    (out / RunFiles.MLFLOW_NOTE).unlink(missing_ok=True)
    begin, run_ids = Tracking.parent_run, []

    def begin_and_die(tracking: Tracking, *arguments: Any) -> str:
        run_ids.append(begin(tracking, *arguments))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Tracking, "parent_run", begin_and_die)
        with pytest.raises(KeyboardInterrupt):
            ParentInMlflow(NO_SERVER, {"killed": by}, out).connect()
    (found,) = (found for found in _runs(out) if found.info.run_id == run_ids[0])
    assert found.info.status == "RUNNING"
    if by == "the next start":
        ParentInMlflow(NO_SERVER, {"another": "key"}, out).sync([], "FINISHED")
    else:
        assert end_dead_runs(out) == 1
    (found,) = (found for found in _runs(out) if found.info.run_id == run_ids[0])
    assert found.info.status == "KILLED"
    assert end_dead_runs(out) == 0


def test_a_stage_that_the_store_refuses_does_not_stop_others(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = ParentInMlflow(NO_SERVER, {}, out)
    tracking = parent.connect()
    stages = [StageInMlflow(toy_step(out, name)) for name in ("refused", "taken")]
    for stage in stages:
        stage.record, stage.outcome = record_of(stage.step, {"gain": 1.0}), "FINISHED"
    log_metrics = tracking.log_metrics

    def refuse_one(run_id: str, values: dict[str, float], step: int = 0) -> None:
        if run_id == stages[0]._ids[""]:
            raise ConnectionError("refused")
        log_metrics(run_id, values, step)

    with monkeypatch.context() as patch:
        patch.setattr(tracking, "log_metrics", refuse_one)
        with pytest.raises(ConnectionError):
            parent.sync(stages, None)
    assert [stage.is_done for stage in stages] == [False, True]
    assert metrics(out, "taken") == {"loss": 3.0, "gain": 1.0, "wall_s": 1.0}
    parent.sync(stages, "FINISHED")
    assert metrics(out, "refused") == {"loss": 3.0, "gain": 1.0, "wall_s": 1.0}
    assert {statuses(out)[name] for name in ("refused", "taken", out.name)} == {"FINISHED"}


def test_steps_that_a_rewind_may_void_are_not_sent_before_a_later_checkpoint(out: Path) -> None:
    parent = ParentInMlflow(NO_SERVER, {}, out)
    stage = StageInMlflow(toy_step(out, "rewinding", patience_steps=1))
    parent.sync([stage], None)
    assert metrics(out, "rewinding") == {}
    journal = Journal(stage.step.folder / "journal.jsonl")
    journal.event("a commit", name="checkpoint", step=2)
    parent.sync([stage], None)
    assert metrics(out, "rewinding") == {"loss": 2.0}
    parent.sync([], "KILLED")


def test_a_stage_whose_folder_got_another_key_continues_its_run(out: Path) -> None:
    parent = ParentInMlflow(NO_SERVER, {}, out)
    step = toy_step(out, "accepted")
    parent.sync([StageInMlflow(step)], None)
    folder = step.folder.with_name("accepted-0123456789ab")
    step.folder.rename(folder)
    moved = replace(step, key="0123456789ab" + "0" * 52, folder=folder)
    Journal(folder / "journal.jsonl").step(4, {"loss": 4.0})
    ParentInMlflow(NO_SERVER, {}, out).sync([StageInMlflow(moved)], "KILLED")
    assert metrics(out, "accepted") == {"loss": 4.0}


def test_figures_of_every_node_reach_the_stages_run(out: Path) -> None:
    parent = ParentInMlflow(NO_SERVER, {}, out)
    stage = StageInMlflow(toy_step(out, "on-nodes"))
    parent.sync([stage], None)
    for node in ("a", "b"):
        journal = Journal(stage.step.folder / f"system-{node}.jsonl")
        journal.step(1, {f"system/{node}/cpu_utilization_percentage": 50.0})
    parent.sync([stage], "KILLED")
    found = metrics(out, "on-nodes")
    assert (
        found["system/a/cpu_utilization_percentage"] == found["system/b/cpu_utilization_percentage"] == 50.0
    )


def test_a_server_that_is_down_delays_no_stage_and_loses_nothing(out: Path) -> None:
    step = toy_step(out, "trained")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    reporter = RecordingReporter()
    away = {"experiment": "test", "store": f"http://127.0.0.1:{port}"}
    began_s = time.monotonic()
    run = MlflowLogger(ParentInMlflow(away, {}, out), reporter)
    with run.stage(step):
        pass
    run.submit(step, record_of(step, {"gain": 1.0}))
    assert time.monotonic() - began_s < 2
    run.close("FINISHED")
    assert [
        line
        for line in reporter.warnings
        if "not everything could be logged" in line and "same command" in line
    ]
    assert not is_logged(out, [step], away["store"])

    run = MlflowLogger(ParentInMlflow(NO_SERVER, {}, out), reporter)
    run.submit(step, record_of(step, {"gain": 1.0}))
    run.close("FINISHED")
    assert metrics(out, "trained") == {"loss": 3.0, "gain": 1.0, "wall_s": 1.0}
    assert is_logged(out, [step], store_uri(out, None))


def test_everything_is_logged_to_a_store_that_comes_back(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.mlflow.run_logger.INTERVAL_S", 0.05)
    parent, reporter = ParentInMlflow(NO_SERVER, {}, out), RecordingReporter()
    step, tracking = toy_step(out, "through-trouble"), parent.connect()
    feed = tracking.feed
    is_away = True

    def sometimes(*arguments: Any) -> Any:
        if is_away:
            raise ConnectionError("the store is gone")
        return feed(*arguments)

    monkeypatch.setattr(tracking, "feed", sometimes)
    run = MlflowLogger(parent, reporter)
    with run.stage(step):
        _wait_until(lambda: bool(reporter.warnings))
        is_away = False
        _wait_until(lambda: "MLflow works again" in reporter.lines)
        assert metrics(out, "through-trouble") == {"loss": 3.0}
    run.submit(step, record_of(step, {}))
    run.close("FINISHED")
    assert len(reporter.warnings) == 1
    assert "the store is gone" in reporter.warnings[0]
    assert statuses(out)["through-trouble"] == "FINISHED"


def _wait_until(reached: Any) -> None:
    deadline_s = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
