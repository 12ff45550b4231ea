"""A process that feeds a journal to MLflow until somebody kills it."""

from multiprocessing.connection import Connection
from pathlib import Path

from cluster import journal_feed
from cluster.tracking import Tracking


def feed_on(store: str, run_id: str, journal: str, ready: Connection) -> None:
    """In small transactions, so that a kill lands in or between many of them; says when it begins."""
    journal_feed._BATCH_METRICS = 5
    feed = Tracking(store, None).feed(run_id, Path(journal))
    ready.send("feeding")
    while True:
        feed.pump()
