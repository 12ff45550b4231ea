"""Which MLflow store a run uses, and where its artifacts go."""

from pathlib import Path

_SERVER_SCHEMES = ("http://", "https://", "databricks")
_SQLITE_SCHEME = "sqlite:///"


def store_uri(out: Path, configured: str | None) -> str:
    """The MLflow store of a run: the configured one, or the SQLite file in its folder."""
    return configured or f"{_SQLITE_SCHEME}{out.resolve()}/mlflow.db"


def is_server(store: str) -> bool:
    """Whether the store is behind a network, so that it may be away for a while."""
    return store.startswith(_SERVER_SCHEMES)


def artifact_root(out: Path, store: str) -> Path | None:
    """Where artifacts go: beside an SQLite file, which several runs may share, or else into the run's folder.

    None for a tracking server, which keeps them where it was told to.
    """
    if is_server(store):
        return None
    file_name = (
        store.removeprefix(_SQLITE_SCHEME).partition("?")[0] if store.startswith(_SQLITE_SCHEME) else ""
    )
    folder = Path(file_name).resolve().parent if file_name else out.resolve()
    return folder / "mlartifacts"
