"""The MLflow store of a run, and the place of its artifacts."""

from pathlib import Path

from cluster.sqlite_store import sqlite_file
from pipeline.folder.layout import RunFiles

_SERVER_SCHEMES = ("http://", "https://", "databricks")


def store_uri(out: Path, configured: str | None) -> str:
    """Return the URI of a run's MLflow store: the configured one, or the SQLite file in its folder."""
    return configured or f"sqlite:///{own_file(out)}"


def own_file(out: Path) -> Path:
    """Return the path of the SQLite file of a run without a configured store."""
    return out.resolve() / RunFiles.MLFLOW_STORE


def is_server(store: str) -> bool:
    """Return whether the store is reached over a network, so that it may be unavailable for a while."""
    return store.startswith(_SERVER_SCHEMES)


def artifact_root(out: Path, store: str) -> Path | None:
    """Return the folder of artifacts: beside an SQLite file, which several runs may share, else in the run's folder.

    Returns None for a tracking server, which has its own place for artifacts.
    """
    if is_server(store):
        return None
    file = sqlite_file(store)
    folder = out.resolve() if file is None else file.resolve().parent
    return folder / RunFiles.MLFLOW_ARTIFACTS
