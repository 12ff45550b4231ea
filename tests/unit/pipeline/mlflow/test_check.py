"""A run's MLflow store that was damaged, cut or deleted is noticed by the same command and made again."""

import math
import random
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cluster.journal import Journal
from cluster.storage import read_document, write_document
from pipeline.folder.graph import StageContext
from pipeline.folder.recipe import load_run_config
from tests.unit.pipeline.toy_run import ToyRun, close_stores

# MLflow's own SQLAlchemy models and its SQLite pools, not ours.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
_CHANGE_COUNTER = range(24, 28)


def content(path: Path) -> dict[str, Any]:
    """What MLflow knows, by the runs' names; ids and times of summaries are new in a store that was made again."""
    with closing(sqlite3.connect(path)) as store:
        runs = list(store.execute("select run_uuid, name, status from runs"))
        names = {run_id: name for run_id, name, _ in runs}

        def all_rows(run_id: str) -> list[list[tuple[Any, ...]]]:
            tables = {"params": "key, value", "tags": "key, value", "metrics": "key, step, value, is_nan"}
            found = (
                store.execute(f"select {columns} from {table} where run_uuid = ?", (run_id,))
                for table, columns in tables.items()
            )
            return [sorted(tuple(names.get(value, value) for value in row) for row in rows) for rows in found]

        return {name: (status, all_rows(run_id)) for run_id, name, status in runs}


def has_metric(path: Path, key: str, step: int) -> bool:
    if not path.exists():
        return False
    with closing(sqlite3.connect(path)) as store:
        found = store.execute("select count(*) from metrics where key = ? and step = ?", (key, step))
        return found.fetchone() != (0,)


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def overwrite(path: Path) -> None:
    path.write_text("this is no database" * 1000)


def drop_a_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as store:
        store.execute("drop table params")


def lose_the_runs(path: Path) -> None:
    with closing(sqlite3.connect(path)) as store:
        for table in ("metrics", "latest_metrics", "params", "tags", "runs"):
            store.execute(f"delete from {table}")
        store.commit()


def change_a_value(path: Path) -> None:
    with closing(sqlite3.connect(path)) as store:
        store.execute("update metrics set value = 0.75 where key = 'loss' and step = 3")
        store.commit()


def change_a_last_value(path: Path) -> None:
    with closing(sqlite3.connect(path)) as store:
        store.execute("update latest_metrics set value = 0.75 where key = 'loss'")
        store.commit()


def lose_the_last_steps(path: Path) -> None:
    with closing(sqlite3.connect(path)) as store:
        store.execute("delete from metrics where key = 'loss' and step = 5")
        store.execute("delete from latest_metrics where key = 'loss'")
        store.commit()


_DAMAGES: tuple[Callable[[Path], None], ...] = (
    cut,
    empty,
    overwrite,
    Path.unlink,
    drop_a_table,
    lose_the_runs,
    change_a_value,
    change_a_last_value,
    lose_the_last_steps,
)


@pytest.mark.parametrize("damage", _DAMAGES)
def test_the_same_command_makes_a_damaged_store_again_from_the_journals(
    toy: ToyRun, damage: Callable[[Path], None]
) -> None:
    toy.command()
    store = toy.out / "mlflow.db"
    untouched = content(store)
    close_stores()
    damage(store)
    damaged = store.read_bytes() if store.exists() else None
    toy.command()
    (warning,) = toy.warned
    assert f"the MLflow store {store} is " in warning or f"the MLflow store {store} has lost " in warning
    assert content(store) == untouched
    kept = list(toy.out.glob("mlflow.db.damaged-*"))
    assert [path.read_bytes() for path in kept] == ([] if damaged is None else [damaged])
    assert all(path.name in warning for path in kept)
    assert toy.ran == ["first", "second"]
    toy.command()
    assert toy.warned == []


def test_after_a_kill_while_a_damaged_store_is_renamed_the_next_command_recreates_it(
    toy: ToyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.command()
    store = toy.out / "mlflow.db"
    untouched = content(store)
    close_stores()
    cut(store)

    def die(point: str) -> None:
        assert point == "store.set_aside"
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("cluster.sqlite_store.fault_point", die)
        with pytest.raises(KeyboardInterrupt):
            toy.command()
    assert not store.exists()
    toy.command()
    assert "is gone" in toy.warned[0]
    assert content(store) == untouched


def test_any_flipped_byte_of_a_store_at_rest_is_noticed(toy: ToyRun) -> None:
    toy.command()
    store, draw = toy.out / "mlflow.db", random.Random(4)
    untouched = content(store)
    offsets = [0, 17, 45, 57, 102, *(draw.randrange(100, store.stat().st_size) for _ in range(4))]
    for offset in offsets:
        close_stores()
        with store.open("r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 1 << draw.randrange(8)]))
        toy.command()
        assert len(toy.warned) == 1, f"byte {offset} was flipped, and nobody noticed"
        assert content(store) == untouched


def test_what_others_write_into_the_store_is_no_damage(toy: ToyRun) -> None:
    toy.command()
    close_stores()
    with closing(sqlite3.connect(toy.out / "mlflow.db")) as store:
        store.execute("update runs set name = 'the good one' where name = 'out'")
        store.execute("insert into tags select 'mine', 'note', run_uuid from runs")
        store.commit()
    toy.command()
    assert toy.warned == []
    assert "the good one" in toy.runs()


def test_a_run_in_mlflows_bin_stays_there(toy: ToyRun) -> None:
    from mlflow import MlflowClient

    toy.command()
    MlflowClient(f"sqlite:///{toy.out}/mlflow.db").delete_run(toy.runs()["out"].info.run_id)
    toy.command()
    assert toy.warned == []
    assert "out" not in toy.runs()


def test_a_store_that_was_damaged_while_the_run_was_unfinished_is_made_again(toy: ToyRun) -> None:
    toy.failure = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        toy.command()
    close_stores()
    change_a_value(toy.out / "mlflow.db")
    toy.failure = None
    toy.command()
    assert "loss at step 3 is not what" in toy.warned[0]
    losses = [row for row in content(toy.out / "mlflow.db")["second"][1][2] if row[0] == "loss"]
    assert [(row[1], row[2]) for row in losses] == [(step, 1.0 / step) for step in range(1, 6)]


def test_a_damaged_store_is_noticed_without_the_note_of_what_it_was_like(toy: ToyRun) -> None:
    """As after a kill: the note is older than the file."""
    toy.command()
    note = toy.out / ".tracked.json"
    write_document(note, {**read_document(note), "seal": ""})
    untouched = content(toy.out / "mlflow.db")
    close_stores()
    change_a_value(toy.out / "mlflow.db")
    toy.command()
    assert len(toy.warned) == 1
    assert content(toy.out / "mlflow.db") == untouched


@pytest.mark.parametrize("damage", [cut, Path.unlink, lose_the_runs])
def test_a_store_elsewhere_is_not_made_again_but_named(
    toy: ToyRun, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    shared = tmp_path / "elsewhere.db"
    toy.config = load_run_config("smoke", [f"tracking.store=sqlite:///{shared}"])
    toy.command()
    close_stores()
    damage(shared)
    damaged = shared.read_bytes() if shared.exists() else None
    toy.command()
    (warning,) = toy.warned
    assert str(shared) in warning
    assert ".tracked.json" in warning
    assert (shared.read_bytes() if shared.exists() else None) == damaged


def test_a_half_migrated_store_with_runs_is_made_again(toy: ToyRun) -> None:
    toy.command()
    store = toy.out / "mlflow.db"
    untouched = content(store)
    close_stores()
    with closing(sqlite3.connect(store)) as database:
        database.execute("update alembic_version set version_num = 'cc1f77228345'")
        database.commit()
    shutil.rmtree(next(toy.out.glob("second-*")))
    toy.command()
    assert "cannot be migrated" in toy.warned[0]
    assert content(store).keys() == untouched.keys()


def test_metrics_that_a_run_has_only_after_it_went_back_are_not_missed(
    toy: ToyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow is given a metric's steps upwards, so one that comes behind later steps is never sent."""
    write_steps = toy.second

    def second(context: StageContext) -> dict[str, Any]:
        summary = write_steps(context)
        journal = Journal(context.folder / "journal.jsonl")
        journal.step(6, {"loss": math.nan})
        journal.step(7, {"loss": 0.4, "gradient_norm": 2.0})
        deadline_s = time.monotonic() + 120
        while not has_metric(toy.out / "mlflow.db", "gradient_norm", 7):
            assert time.monotonic() < deadline_s, "MLflow was not given what the journal says"
            time.sleep(0.1)
        journal.event("went back", name="rewind", to_step=5)
        journal.step(6, {"loss": 0.3, "gradient_norm": 1.0})
        journal.step(7, {"loss": 0.2, "gradient_norm": 1.5})
        journal.step(8, {"loss": 0.1, "gradient_norm": 1.2})
        journal.close()
        return summary

    monkeypatch.setattr(toy, "second", second)
    toy.command()
    note = toy.out / ".tracked.json"
    write_document(note, {**read_document(note), "seal": ""})  # as after a kill: the runs are compared
    close_stores()
    toy.command()
    assert toy.warned == []
    close_stores()
    with closing(sqlite3.connect(toy.out / "mlflow.db")) as store:
        store.execute("delete from metrics where key = 'gradient_norm' and step = 8")
        store.execute("update latest_metrics set step = 7, value = 2.0 where key = 'gradient_norm'")
        store.commit()
    toy.command()
    assert len(toy.warned) == 1
