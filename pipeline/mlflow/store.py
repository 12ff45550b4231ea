"""Which MLflow store a run uses, and where its artifacts go."""

from pathlib import Path

from cluster.sqlite_store import sqlite_file
from pipeline.folder.layout import RunFiles

_SERVER_SCHEMES = ("http://", "https://", "databricks")


def store_uri(out: Path, configured: str | None) -> str:
    """The MLflow store of a run: the configured one, or the SQLite file in its folder."""
    return configured or f"sqlite:///{own_file(out)}"


def own_file(out: Path) -> Path:
    """The SQLite file of a run that keeps its own store."""
    return out.resolve() / RunFiles.MLFLOW_STORE


def is_server(store: str) -> bool:
    """Whether the store is behind a network, so that it may be away for a while."""
    return store.startswith(_SERVER_SCHEMES)


def artifact_root(out: Path, store: str) -> Path | None:
    """Where artifacts go: beside an SQLite file, which several runs may share, or else into the run's folder.

    None for a tracking server, which keeps them where it was told to.
    """
    if is_server(store):
        return None
    file = sqlite_file(store)
    folder = out.resolve() if file is None else file.resolve().parent
    return folder / RunFiles.MLFLOW_ARTIFACTS
