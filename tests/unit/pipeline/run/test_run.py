"""A run with toy stages: skips, resumes, fails and reports to MLflow as promised."""

from pathlib import Path
from typing import Any

import pytest

from cluster.errors import UserError
from cluster.storage import read_document
from pipeline.folder.graph import StageContext
from pipeline.folder.recipe import load_run_config
from pipeline.mlflow.store import artifact_root
from pipeline.run import run as run_module
from pipeline.run.run import check_report_is_possible, needed_stages
from tests.unit.pipeline.toy_run import ToyRun

# MLflow's own SQLAlchemy models and its SQLite pools, not ours.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_a_run_is_done_once_and_then_skipped(toy: ToyRun) -> None:
    toy.command()
    assert [line.split(":")[0] for line in toy.said[:4]] == ["first", "first", "second", "second"]
    toy.command()
    assert toy.ran == ["first", "second"]
    assert toy.said[0].startswith("first: skipped (finished ")


def test_config_that_was_removed_is_written_again_by_the_same_command(toy: ToyRun) -> None:
    toy.command()
    path = toy.out / "config.yaml"
    text = path.read_text()
    path.unlink()
    toy.command("first")
    assert path.read_text() == text
    assert toy.ran == ["first", "second"]


def test_mlflow_sees_parent_stages_arms_metrics_and_artifacts(toy: ToyRun) -> None:
    toy.command()
    runs = toy.runs()
    assert set(runs) == {"out", "first", "second", "second-arm"}
    assert {found.info.status for found in runs.values()} == {"FINISHED"}
    assert runs["second"].data.tags["mlflow.parentRunId"] == runs["out"].info.run_id
    assert runs["second-arm"].data.tags["mlflow.parentRunId"] == runs["second"].info.run_id
    assert runs["first"].data.metrics["num_files"] == 3
    assert runs["first"].data.metrics["nested.is_good"] == 1
    assert runs["second"].data.metrics["loss"] == pytest.approx(0.2)
    assert runs["second-arm"].data.metrics == {"loss": pytest.approx(0.2), "accuracy": 0.5}
    assert list((toy.out / "mlartifacts").rglob("weights"))
    assert list((toy.out / "mlartifacts").rglob("config.yaml"))
    assert sorted(path.read_text() for path in (toy.out / "mlartifacts").rglob("facts.json")) == [
        "one",
        "two",
    ]


@pytest.mark.parametrize(
    ("failure", "status"),
    [(KeyboardInterrupt(), "KILLED"), (RuntimeError("a bug"), "FAILED"), (UserError("damaged"), "FAILED")],
)
def test_a_failed_stage_is_resumed_in_the_same_mlflow_run(
    toy: ToyRun, failure: BaseException, status: str
) -> None:
    toy.failure = failure
    with pytest.raises(type(failure)):
        toy.command()
    before = toy.runs()
    assert {before[name].info.status for name in ("out", "second", "second-arm")} == {status}
    assert before["first"].info.status == "FINISHED"
    toy.failure = None
    toy.command()
    after = toy.runs()
    assert toy.ran == ["first", "second", "second"]
    assert any(line.startswith("second: resumes (unfinished work") for line in toy.said)
    assert {name: found.info.run_id for name, found in after.items()} == {
        name: found.info.run_id for name, found in before.items()
    }
    assert {found.info.status for found in after.values()} == {"FINISHED"}


def test_what_mlflow_missed_is_logged_by_the_next_command(
    toy: ToyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.mlflow.tracking import Tracking

    def broken(*_arguments: object, **_named: object) -> None:
        raise ConnectionError("the store is gone")

    with monkeypatch.context() as patch:
        patch.setattr(Tracking, "log_metrics", broken)
        toy.command()
    assert [line for line in toy.warned if "the store is gone" in line]
    assert "gain" not in toy.runs()["second"].data.metrics
    toy.command()
    assert toy.runs()["second"].data.metrics["gain"] == 0.25
    assert toy.ran == ["first", "second"]


def test_part_of_a_finished_run_has_nothing_to_log(toy: ToyRun, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.command()
    mark = (toy.out / ".tracked.json").read_text()

    def opened(*_arguments: object) -> None:
        raise AssertionError("MLflow was opened")

    monkeypatch.setattr(run_module, "open_mlflow", opened)
    toy.command("first")
    toy.command()
    assert (toy.out / ".tracked.json").read_text() == mark


def test_the_rest_of_a_run_is_logged_beside_its_first_part(toy: ToyRun) -> None:
    toy.command("first")
    assert set(read_document(toy.out / ".tracked.json")["stages"]) == {"first"}
    toy.command()
    assert set(read_document(toy.out / ".tracked.json")["stages"]) == {"first", "second"}
    toy.command("first")
    assert set(read_document(toy.out / ".tracked.json")["stages"]) == {"first", "second"}


def test_after_a_damaged_note_the_store_is_only_queried_again(toy: ToyRun) -> None:
    toy.command()
    note = toy.out / ".tracked.json"
    known = {**read_document(note), "seal": ""}
    for damaged in ("{", "[]", '{"stages": []}'):
        note.write_text(damaged)
        toy.command()
        assert {**read_document(note), "seal": ""} == known
    assert toy.ran == ["first", "second"]


def test_a_store_of_ones_own_keeps_artifacts_beside_itself(
    toy: ToyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    toy.config = load_run_config("smoke", [f"tracking.store=sqlite:///{tmp_path}/store/shared.db"])
    toy.command()
    assert list((tmp_path / "store" / "mlartifacts").rglob("weights"))
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    ("store", "root"),
    [
        ("http://host:5000", None),
        ("https://host", None),
        ("databricks", None),
        ("databricks://profile", None),
        ("sqlite:////stores/shared.db?timeout=5", Path("/stores/mlartifacts")),
        ("postgresql://host/db", Path("/runs/out/mlartifacts")),
    ],
)
def test_only_a_tracking_server_chooses_where_artifacts_go(store: str, root: Path | None) -> None:
    assert artifact_root(Path("/runs/out"), store) == root


def test_leftovers_of_a_killed_run_are_swept_and_hidden_files_stay_out_of_mlflow(toy: ToyRun) -> None:
    toy.failure = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        toy.command()
    (folder,) = toy.out.glob("second-*")
    (folder / "model").mkdir(exist_ok=True)
    (folder / "model" / ".weights.41.tmp").write_text("half")
    (folder / "model" / ".cache").write_text("hidden")
    toy.failure = None
    toy.command()
    assert sorted(path.name for path in folder.rglob(".*")) == [".cache", ".mlflow.json"]
    uploaded = [path.name for path in (toy.out / "mlartifacts").rglob("*") if path.is_file()]
    assert "weights" in uploaded
    assert [name for name in uploaded if name.startswith(".")] == []


def test_a_full_disk_is_a_clear_line_and_what_was_begun_stays(
    toy: ToyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(context: StageContext) -> dict[str, Any]:
        (context.folder / "hours-of-work").write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(toy, "first", full)
    with pytest.raises(UserError, match="disk full while working in .*: free some space"):
        toy.command()
    assert [path.read_text() for path in toy.out.glob("first-*/hours-of-work")] == ["half"]


def test_a_damaged_output_stops_the_run_and_is_kept(toy: ToyRun) -> None:
    toy.command()
    (data,) = toy.out.glob("first-*/data")
    data.write_text("dada")
    with pytest.raises(UserError, match="data is damaged"):
        toy.command()
    assert data.read_text() == "dada"
    assert toy.ran == ["first", "second"]


def test_a_store_that_cannot_be_used_stops_before_any_work(toy: ToyRun) -> None:
    (toy.out.parent / "file").write_text("in the way")
    store = f"sqlite:///{toy.out.parent}/file/mlflow.db"
    toy.config = load_run_config("smoke", [f"tracking.store={store}"])
    with pytest.raises(UserError, match="MLflow store.*file/mlflow.db"):
        toy.command()
    assert toy.ran == []
    assert not toy.out.exists()


def test_a_report_without_its_stages_names_them(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_run_config("smoke", [f"prep.source.path={corpus}"])
    with pytest.raises(UserError, match="not finished: prep, pretrain, completion, search"):
        check_report_is_possible(config, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("targets", "names"),
    [
        (["prep"], ["prep"]),
        (["completion", "search"], ["prep", "pretrain", "completion", "search"]),
        (["report"], ["prep", "pretrain", "completion", "search", "report"]),
    ],
)
def test_a_command_needs_the_stages_below_its_targets(targets: list[str], names: list[str]) -> None:
    from pipeline.run.stages import build_stages

    assert [stage.name for stage in needed_stages(build_stages(load_run_config("smoke")), targets)] == names
