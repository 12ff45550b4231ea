"""MLflow's SQLite file: created and migrated completely or not at all.

MLflow's migration commits statement by statement, so a kill in the middle of it leaves a file that no later migration
can finish. Here it works on a temporary file beside the store, which becomes the store by a rename. SQLite replays a
`-journal` or `-wal` file beside a database into it, so none may be left beside a file that is new under its name.
"""

import os
import secrets
import sqlite3
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cluster.errors import UserError, first_line
from cluster.fault_points import fault_point
from cluster.storage import exclusive_lock, fsync_folder

_SCHEME = "sqlite:///"
_SIDE_SUFFIXES = ("-journal", "-wal", "-shm")
_LOCK_WAIT_S = 300.0
"""How long another process may take to create the same store, on a busy machine."""
_BUSY_WAIT_S = 20.0
_DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_FORMAT)
"""SQLITE_ERROR: a table that every store has is missing."""


class BrokenStoreError(UserError):
    """The store is damaged, or cannot be migrated to the schema that the installed MLflow needs."""


def sqlite_file(store_uri: str) -> Path | None:
    """Return the database file of a store; None if the store is not an SQLite file."""
    if not store_uri.startswith(_SCHEME):
        return None
    name = store_uri.removeprefix(_SCHEME).partition("?")[0]
    return Path(name) if name and name != ":memory:" else None


def make_ready(path: Path, is_own: bool) -> None:
    """Make `path` a store with the installed MLflow's schema; a store that has it already is not touched.

    A missing or empty file is created. If only the caller writes to the store (`is_own`: it holds a lock that ensures
    this), a store without a run whose migration was not finished is created again, and a store of an older schema is
    migrated as a copy. BrokenStoreError for a damaged store or one whose migration fails, UserError for any other that
    the installed MLflow cannot use.
    """
    if _is_file_with_content(path) and _is_current(path):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    with nullcontext() if is_own else exclusive_lock(lock, wait_s=_LOCK_WAIT_S):
        for leftover in path.parent.glob(f".{path.name}.*.tmp*"):
            leftover.unlink()
        if not _is_file_with_content(path):
            _create(path, is_own)
        elif not _is_current(path):
            _replace_or_refuse(path, is_own)


def connect(path: Path) -> sqlite3.Connection:
    """Open an existing database; SQLite rolls back what a killed writer left unfinished.

    Reading changes nothing else. sqlite3.OperationalError when there is no file.
    """
    return sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, timeout=_BUSY_WAIT_S)


def is_damage(error: sqlite3.DatabaseError) -> bool:
    """Return whether `error` means that the file is no complete MLflow database, not that it cannot be read now."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_NOTADB) & 0xFF in _DAMAGE_CODES


def set_aside(path: Path) -> Path | None:
    """Rename a store and its side files to `NAME.damaged-TIME` and return that path; None if there was no file."""
    aside = path.with_name(f"{path.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
    was_there = path.exists()
    if was_there:
        os.replace(path, aside)
    fault_point("store.set_aside")
    for suffix in _SIDE_SUFFIXES:
        side = path.with_name(path.name + suffix)
        if side.exists():
            os.replace(side, aside.with_name(aside.name + suffix))
    fsync_folder(path.parent)
    return aside if was_there else None


def _is_file_with_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _is_current(path: Path) -> bool:
    """Return whether the file has the newest schema of the installed MLflow; False for a damaged file.

    A migration writes its revision when all its statements are done.
    """
    from mlflow.store.db.utils import _get_latest_schema_revision

    return _revision(path) == str(_get_latest_schema_revision())


def _revision(path: Path) -> str | None:
    try:
        with closing(connect(path)) as database:
            row = database.execute("select version_num from alembic_version").fetchone()
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return None
        raise UserError(f"the MLflow store {_SCHEME}{path} cannot be used ({error})") from error
    return None if row is None else str(row[0])


def _is_known(revision: str) -> bool:
    """Return whether the installed MLflow can migrate from this revision."""
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError
    from mlflow.store.db.utils import _get_alembic_config

    try:
        return bool(ScriptDirectory.from_config(_get_alembic_config("")).get_revision(revision))
    except CommandError:
        return False


def _num_runs(path: Path) -> int | None:
    """Return the number of runs in the store; None if the file cannot be read as a database."""
    try:
        with closing(connect(path)) as database:
            tables = {name for (name,) in database.execute("select name from sqlite_master")}
            return database.execute("select count(*) from runs").fetchone()[0] if "runs" in tables else 0
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return None
        raise UserError(f"the MLflow store {_SCHEME}{path} cannot be used ({error})") from error


def _replace_or_refuse(path: Path, is_own: bool) -> None:
    num_runs, revision, store = _num_runs(path), _revision(path), f"{_SCHEME}{path}"
    if is_own and num_runs == 0:
        _create(path, is_own)
    elif revision is None or num_runs is None:
        raise BrokenStoreError(
            f"the MLflow store {store} cannot be used (damaged, not an MLflow database, or left unfinished by a "
            "process that was killed): repair or move it, or set tracking.store"
        )
    elif not _is_known(revision):
        raise UserError(
            f"the MLflow store {store} cannot be used (its schema {revision} is one of a newer MLflow): install that "
            "MLflow, or set tracking.store"
        )
    elif not is_own:
        raise UserError(
            f"the MLflow store {store} cannot be used (its schema {revision} is one of an older MLflow): stop what "
            f"writes to it, copy it and run `mlflow db upgrade {store}`, or set tracking.store"
        )
    else:
        _migrate(path)


def _create(path: Path, is_own: bool) -> None:
    temporary = _temporary(path)
    try:
        _run_migrations(temporary, is_new=True)
        if not is_own and _is_file_with_content(path):
            return  # a program that does not use our lock created it in the meantime
        for suffix in _SIDE_SUFFIXES:
            # These belong to a database that was deleted; SQLite would replay them into the new one.
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        _publish(temporary, path)
    finally:
        _remove(temporary)


def _migrate(path: Path) -> None:
    """Migrate a copy, which includes the content of the side files, and replace the original by it.

    No other process may have the original open.
    """
    temporary = _temporary(path)
    try:
        with closing(connect(path)) as original, closing(sqlite3.connect(temporary)) as copy:
            original.backup(copy)
        fault_point("store.copied")
        try:
            _run_migrations(temporary, is_new=False)
        except Exception as error:  # on a partly migrated store, migrations fail in any way
            raise BrokenStoreError(
                f"the MLflow store {_SCHEME}{path} cannot be migrated to the installed MLflow's schema "
                f"({first_line(error)})"
            ) from error
        if any(path.with_name(path.name + suffix).exists() for suffix in _SIDE_SUFFIXES):
            raise UserError(
                f"the MLflow store {_SCHEME}{path} must be migrated, but another program writes to it: "
                "stop that program first"
            )
        _publish(temporary, path)
    finally:
        _remove(temporary)


def _run_migrations(path: Path, is_new: bool) -> None:
    from mlflow.store.db.utils import _initialize_tables, _upgrade_db, create_sqlalchemy_engine
    from sqlalchemy import event

    def on_connect(connection: sqlite3.Connection, record: Any) -> None:
        # Safe, because the file is synced at the end, before it gets its name.
        connection.execute("pragma synchronous = off")
        connection.execute("pragma journal_mode = memory")

    def before_statement(*arguments: Any) -> None:
        fault_point("store.statement")

    engine = create_sqlalchemy_engine(f"{_SCHEME}{path}")
    event.listen(engine, "connect", on_connect)
    event.listen(engine, "before_cursor_execute", before_statement)
    try:
        (_initialize_tables if is_new else _upgrade_db)(engine)
    finally:
        engine.dispose()
    if not _is_current(path):
        raise BrokenStoreError(f"MLflow's migration of {path} did not reach its newest schema")
    fault_point("store.migrated")


def _publish(temporary: Path, path: Path) -> None:
    descriptor = os.open(temporary, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    fault_point("store.synced")
    os.replace(temporary, path)
    fault_point("store.renamed")
    fsync_folder(path.parent)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def _remove(temporary: Path) -> None:
    for suffix in ("", *_SIDE_SUFFIXES):
        temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)
