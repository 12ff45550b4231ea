"""Only the command that the user started writes to MLflow's file: SQLite's locks may not work on shared storage."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from cluster.sqlite_store import make_ready
from pipeline.mlflow.tracking import Tracking

_ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("module", ["pretrain.worker", "finetune.training.finetuner"])
def test_a_worker_has_neither_mlflow_nor_what_writes_to_it(module: str) -> None:
    writers = ("mlflow", "pipeline", "cluster.sqlite_store")
    code = f"import sys, {module}; print([name for name in {writers} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "DS_ACCELERATOR": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_file_needs_no_memory_that_is_shared_between_nodes(tmp_path: Path) -> None:
    """SQLite's write-ahead log would: it does not work on network file systems."""
    store = tmp_path / "mlflow.db"
    make_ready(store, is_own=True)
    tracking = Tracking(f"sqlite:///{store}", tmp_path / "artifacts", owns_store=True)
    tracking.log_metrics(tracking.parent_run("run", "key", {}), {"loss": 1.0})
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("pragma journal_mode").fetchone() == ("delete",)
    assert not list(tmp_path.glob("mlflow.db-*"))
