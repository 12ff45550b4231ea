"""MLflow's SQLite file is created completely or not at all, tested with processes that SIGKILL themselves."""

import multiprocessing
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from cluster.errors import UserError
from cluster.sqlite_store import BrokenStoreError, make_ready, set_aside
from tests.unit.pipeline.mlflow.feeding import make_store


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["tests.unit.pipeline.mlflow.feeding", "mlflow.store.tracking.sqlalchemy_store"]
    )
    return context


def exit_code(processes: ForkServerContext, path: Path, fault: str) -> int | None:
    """Run a process that makes the store ready and may be killed at `fault`; return its exit code."""
    process = processes.Process(target=make_store, args=(str(path), fault))
    process.start()
    process.join()
    return process.exitcode


def schema(path: Path) -> set[tuple[str, str]]:
    """Return every table's columns; MLflow's migration creates constraints in random order."""
    with closing(sqlite3.connect(path)) as database:
        return set(
            database.execute(
                "select tables.name, columns.name from sqlite_master as tables, "
                "pragma_table_info(tables.name) as columns"
            )
        )


def make_older(path: Path) -> str:
    """Undo the newest migration, as if an older MLflow had made the store; return its revision."""
    from alembic import command
    from mlflow.store.db.utils import _get_alembic_config, create_sqlalchemy_engine

    engine = create_sqlalchemy_engine(f"sqlite:///{path}")
    config = _get_alembic_config(f"sqlite:///{path}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "-1")
    engine.dispose()
    with closing(sqlite3.connect(path)) as database:
        return str(database.execute("select version_num from alembic_version").fetchone()[0])


def add_run(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("insert into runs (run_uuid, name, experiment_id) values ('abc', 'mine', 0)")
        database.commit()


def runs(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return [name for (name,) in database.execute("select name from runs")]


def test_a_store_is_complete_after_repeated_kills_during_its_creation(
    tmp_path: Path, new_store: Callable[[Path], str], processes: ForkServerContext
) -> None:
    (tmp_path / "complete").mkdir()
    new_store(tmp_path / "complete")
    path = tmp_path / "mlflow.db"
    for fault in ("store.statement:60", "store.statement:300", "store.synced:1"):
        assert exit_code(processes, path, fault) == -signal.SIGKILL
        assert not path.exists()
        assert len(list(tmp_path.glob(".mlflow.db.*.tmp"))) == 1, "nothing was begun, or old files stay"
    assert exit_code(processes, path, "store.renamed:1") == -signal.SIGKILL
    assert exit_code(processes, path, "") == 0
    assert schema(path) == schema(tmp_path / "complete/mlflow.db")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["complete", "mlflow.db"]


def test_migrating_a_store_of_an_older_mlflow_is_atomic_and_keeps_its_runs(
    tmp_path: Path, new_store: Callable[[Path], str], processes: ForkServerContext
) -> None:
    new_store(tmp_path)
    path = tmp_path / "mlflow.db"
    newest = schema(path)
    make_older(path)
    add_run(path)
    older = path.read_bytes()
    for fault in ("store.copied:1", "store.statement:4", "store.migrated:1", "store.synced:1"):
        assert exit_code(processes, path, fault) == -signal.SIGKILL
        assert path.read_bytes() == older
    make_ready(path, is_own=True)
    assert schema(path) == newest
    assert runs(path) == ["mine"]


def test_a_shared_store_of_an_older_mlflow_is_not_migrated(
    tmp_path: Path, new_store: Callable[[Path], str]
) -> None:
    new_store(tmp_path)
    make_older(tmp_path / "mlflow.db")
    with pytest.raises(UserError, match=r"older MLflow.*mlflow db upgrade sqlite:"):
        make_ready(tmp_path / "mlflow.db", is_own=False)


def half_migrate(path: Path) -> None:
    """Leave the store as a killed MLflow migration does: some of its steps are done and not recorded."""
    with closing(sqlite3.connect(path)) as database:
        for (sql,) in database.execute("select sql from sqlite_master where name = 'experiments'").fetchall():
            database.execute(sql.replace("experiments", "_alembic_tmp_experiments", 1))
        database.execute("update alembic_version set version_num = 'cc1f77228345'")
        database.commit()


def test_a_partly_migrated_store_without_a_run_is_recreated_by_its_owner_only(
    tmp_path: Path, new_store: Callable[[Path], str]
) -> None:
    new_store(tmp_path)
    path = tmp_path / "mlflow.db"
    newest = schema(path)
    half_migrate(path)
    half = path.read_bytes()
    with pytest.raises(UserError, match="cannot be used"):
        make_ready(path, is_own=False)
    assert path.read_bytes() == half
    make_ready(path, is_own=True)
    assert schema(path) == newest


def test_a_partly_migrated_store_with_runs_is_not_changed(
    tmp_path: Path, new_store: Callable[[Path], str]
) -> None:
    new_store(tmp_path)
    path = tmp_path / "mlflow.db"
    half_migrate(path)
    add_run(path)
    half = path.read_bytes()
    with pytest.raises(BrokenStoreError, match="cannot be migrated"):
        make_ready(path, is_own=True)
    assert path.read_bytes() == half


def test_a_store_of_a_newer_mlflow_is_refused(tmp_path: Path, new_store: Callable[[Path], str]) -> None:
    new_store(tmp_path)
    path = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("update alembic_version set version_num = 'ffffffffffff'")
        database.commit()
    add_run(path)
    with pytest.raises(UserError, match="newer MLflow"):
        make_ready(path, is_own=True)


def test_a_journal_of_a_deleted_store_is_not_replayed_into_the_new_one(
    tmp_path: Path, new_store: Callable[[Path], str]
) -> None:
    new_store(tmp_path)
    path, side = tmp_path / "mlflow.db", tmp_path / "mlflow.db-journal"
    with closing(sqlite3.connect(path)) as database:
        database.execute("pragma cache_spill = 1")
        database.execute("begin")
        database.execute("pragma cache_size = 1")
        for number in range(5000):
            database.execute("insert into experiment_tags values (?, 'x', 0)", (str(number) * 20,))
        assert side.stat().st_size > 4096, "no journal that SQLite would play back"
        hot = side.read_bytes()
    path.unlink()
    side.write_bytes(hot)
    make_ready(path, is_own=True)
    assert not side.exists()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("pragma integrity_check").fetchall() == [("ok",)]


def test_a_store_set_aside_keeps_its_journal(tmp_path: Path) -> None:
    for name in ("mlflow.db", "mlflow.db-journal"):
        (tmp_path / name).write_text(name)
    aside = set_aside(tmp_path / "mlflow.db")
    assert aside is not None
    assert aside.name.startswith("mlflow.db.damaged-")
    assert {entry.name: entry.read_text() for entry in tmp_path.iterdir()} == {
        aside.name: "mlflow.db",
        f"{aside.name}-journal": "mlflow.db-journal",
    }
