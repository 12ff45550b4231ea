"""A process that feeds a journal to MLflow until it is killed."""

import os
from multiprocessing.connection import Connection
from pathlib import Path

from pipeline.mlflow import journal_metrics as mlflow_feed
from pipeline.mlflow.tracking import Tracking


def feed_on(store: str, run_id: str, journal: str, ready: Connection) -> None:
    """In small transactions, so that a kill lands in or between many of them; says when it begins."""
    mlflow_feed._BATCH_METRICS = 5
    feed = Tracking(store, None).feed(run_id, Path(journal))
    ready.send("feeding")
    while True:
        feed.send_new()


def make_store(path: str, fault: str) -> None:
    """Open a store as a run's own; die at `fault` (see `cluster.fault_points`), if one is given."""
    os.environ["PERMCODE_FAULT"] = fault
    Tracking(f"sqlite:///{path}", Path(path).parent, owns_store=True)
