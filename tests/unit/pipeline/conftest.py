"""What several test files of the pipeline share."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.run import run as run_module
from tests.unit.pipeline.recording_reporter import RecordingReporter
from tests.unit.pipeline.toy_run import ToyRun

if TYPE_CHECKING:
    from sqlalchemy import Engine


@pytest.fixture
def reporter() -> RecordingReporter:
    return RecordingReporter()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder that a directory source accepts: three packages of a few lines."""
    folder = tmp_path / "corpus"
    for package in ("one", "two", "three"):
        (folder / package).mkdir(parents=True)
        (folder / package / "code.py").write_text(f"def {package}(value):\n    return value + 1\n" * 10)
    return folder


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an MLflow store with all its tables and nothing in them."""
    import mlflow.store.db.utils as mlflow_tables
    from sqlalchemy import create_engine

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    engine = create_engine(f"sqlite:///{path}")
    mlflow_tables._initialize_tables(engine)
    engine.dispose()
    return path


@pytest.fixture
def tables_are_copied(empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow makes a store's tables by fifty migrations, 1.5 s of them; here they are made once and copied."""

    import mlflow.store.db.utils as mlflow_tables

    def copy_tables(engine: "Engine") -> None:
        with closing(sqlite3.connect(empty_store)) as empty, engine.connect() as connection:
            empty.backup(connection.connection.dbapi_connection)

    monkeypatch.setattr(mlflow_tables, "_initialize_tables", copy_tables)


@pytest.fixture
def toy(tmp_path: Path, tables_are_copied: None, monkeypatch: pytest.MonkeyPatch) -> ToyRun:
    toy = ToyRun(tmp_path / "out")
    monkeypatch.setattr(run_module, "build_stages", toy.stages)
    return toy
