"""Checks that a run's MLflow store still holds what was logged, with SQL and without MLflow; else recreates it.

SQLite has no checksums, so at the end of a command the file's SHA-256 and its change counter, which SQLite increases
with every transaction, are noted. A file that differs under the same counter was not changed by SQLite. Under another
counter, another program wrote to it or a command was killed: then the runs are compared with the journals.
"""

import math
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from cluster.errors import UserError
from cluster.journal import JournalRecord, read_journal
from cluster.reporter import Reporter
from cluster.sqlite_store import connect, is_damage, set_aside, sqlite_file
from cluster.storage import exclusive_lock, sha256_file
from pipeline.folder.graph import PlannedStage
from pipeline.folder.layout import RunFiles, StageFiles
from pipeline.mlflow.journal_metrics import SettledPoints, metric_key
from pipeline.mlflow.note import MlflowNote, read_note, write_note
from pipeline.mlflow.stage_runs import known_runs
from pipeline.mlflow.store import own_file
from pipeline.mlflow.tracking import CHANGED_TAG, flat_params

_CHANGE_COUNTER = slice(24, 28)
_READ_VERSION = 19
_ROLLBACK_JOURNAL = 1
"""In write-ahead mode the change counter does not count every transaction."""


def check_store(out: Path, store: str, steps: Sequence[PlannedStage], reporter: Reporter) -> None:
    """Recreate an SQLite store that lost data of the run, if it is the run's own; called before a command's work.

    For a store elsewhere a warning is printed; a server is not checked. Raises UserError for a file that cannot be
    read at the moment. The caller holds the folder's lock.
    """
    path, note = sqlite_file(store), read_note(out, store)
    if path is None:
        return
    is_own = path == own_file(out)
    trouble = _find_trouble(path, note, steps, is_own)
    if trouble is None:
        return
    if is_own:
        remake_store(out, store, trouble, reporter)
    else:
        reporter.warn(
            f"the MLflow store {store} {trouble}: restore it, or log the run again: remove "
            f"{out / '.tracked.json'} and run the same command"
        )


def remake_store(out: Path, store: str, trouble: str, reporter: Reporter) -> None:
    """Rename the run's own store and its notes away, so that everything is logged again to a new one."""
    path = own_file(out)
    renamed = set_aside(path)
    for registered in out.glob(f"*/{StageFiles.REGISTERED}"):
        registered.unlink()
    # Written last: if this process is killed before, the next command finds no file and does the same.
    write_note(out, MlflowNote(str(out.resolve()), store))
    kept = "" if renamed is None else f"; the old file is kept as {renamed.name}"
    reporter.warn(
        f"the MLflow store {path} {trouble}: it is created again from the run's journals and records{kept}"
    )


def seal_store(out: Path, store: str) -> None:
    """Note the checksum of the run's own store, at the end of a command; not while another command works in `out`."""
    path = own_file(out)
    if sqlite_file(store) != path or not path.is_file():
        return
    try:
        with exclusive_lock(out / RunFiles.LOCK):
            note, seal = read_note(out, store), _seal(path)
            if note.runs and note.seal != seal:
                write_note(out, replace(note, seal=seal))
    except UserError:
        return


def _find_trouble(path: Path, note: MlflowNote, steps: Sequence[PlannedStage], is_own: bool) -> str | None:
    """Return what is wrong with the store, as the end of a sentence; None if nothing is."""
    if not path.is_file() or path.stat().st_size == 0:
        return "is gone" if note.runs and not path.is_file() else "is empty" if note.runs else None
    if is_own and note.seal and _seal(path) == note.seal:
        return None
    try:
        with closing(connect(path)) as database:
            if is_own:
                ((found,),) = database.execute("pragma integrity_check(1)")
                if found != "ok":
                    return f"is damaged ({found})"
            if note.seal and _was_changed_without_sqlite(path, note.seal):
                return "is damaged (its bytes were changed other than by SQLite)"
            return _lost(database, note, steps) if note.runs else None
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return f"is damaged ({error})"
        raise UserError(f"the MLflow store {path} cannot be used ({error})") from error


def _seal(path: Path) -> str:
    return f"{_header(path)[_CHANGE_COUNTER].hex()}:{sha256_file(path)}"


def _was_changed_without_sqlite(path: Path, seal: str) -> bool:
    header = _header(path)
    same_counter = header[_CHANGE_COUNTER].hex() == seal.partition(":")[0]
    return same_counter and header[_READ_VERSION] == _ROLLBACK_JOURNAL and _seal(path) != seal


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(100).ljust(100, b"\0")


def _lost(database: sqlite3.Connection, note: MlflowNote, steps: Sequence[PlannedStage]) -> str | None:
    """Return what the store lost. A run that was deleted in MLflow's user interface is still there and not checked."""
    parent = note.known_run
    if parent is None:
        return None
    stage = _lifecycle(database, parent)
    if stage is None:
        return "has lost the run"
    if stage != "active":
        return None
    query = (
        "select count(*) from latest_metrics as latest where not exists (select 1 from metrics where run_uuid = "
        "latest.run_uuid and key = latest.key and step = latest.step and value = latest.value and timestamp = "
        "latest.timestamp and is_nan = latest.is_nan)"
    )
    ((num_wrong,),) = database.execute(query)
    if num_wrong:
        return "is damaged (the last value of a metric is none of its values)"
    return next((lost for step in steps for lost in _lost_of(database, note, parent, step)), None)


def _lost_of(
    database: sqlite3.Connection, note: MlflowNote, parent: str, step: PlannedStage
) -> Iterator[str]:
    name, ids = step.stage.name, known_runs(step.folder, parent)
    has_all = note.stages.get(name) == step.key
    if has_all and not ids:
        # The stage's note is gone: its runs are found by key when it is logged again.
        return
    for job, run_id in ids.items():
        stage = _lifecycle(database, run_id)
        if stage is None:
            yield f"has lost the run of {name}"
        if stage != "active":
            continue
        if has_all and not job:
            yield from _lost_params(database, run_id, step)
        if job in step.stage.journals:
            yield from _lost_metrics(database, run_id, step.folder / step.stage.journals[job], has_all)


def _lost_params(database: sqlite3.Connection, run_id: str, step: PlannedStage) -> Iterator[str]:
    """Yield the wrong parameters. One that was changed during the run keeps its first value there and has a tag."""
    stored = dict(database.execute("select key, value from params where run_uuid = ?", (run_id,)))
    tags = {key for (key,) in database.execute("select key from tags where run_uuid = ?", (run_id,))}
    for name, value in flat_params(step.stage.config).items():
        if stored.get(name) != value and f"{CHANGED_TAG}{name}" not in tags:
            yield f"is damaged (the parameter {name} of {step.stage.name} is not {value})"


def _lost_metrics(database: sqlite3.Connection, run_id: str, journal: Path, has_all: bool) -> Iterator[str]:
    """Yield values that are not in the journal and, if `has_all` was logged, steps that are not in MLflow.

    Compared in temporary tables, because a long run has millions of values.
    """
    records = read_journal(journal)
    database.execute("create temp table recorded (key, step, value, time_ms)")
    database.executemany("insert into recorded values (?, ?, ?, ?)", _values(records))
    database.execute("create index temp.by_point on recorded (key, step)")
    strange = (
        "select key, step from metrics as stored where run_uuid = ? and key in (select distinct key from recorded) and "
        "not exists (select 1 from recorded where key = stored.key and step = stored.step and time_ms = "
        "stored.timestamp and value = case when stored.is_nan then 9e999 else stored.value end) limit 1"
    )
    for key, step in database.execute(strange, (run_id,)):
        yield f"is damaged ({key} at step {step} is not what {journal} says)"
    if has_all:
        database.execute("create temp table due (key, step)")
        database.executemany("insert into due values (?, ?)", _due_points(records))
        missing = "select key, step from due except select key, step from metrics where run_uuid = ? limit 1"
        for key, step in database.execute(missing, (run_id,)):
            yield f"has lost {key} at step {step} of {journal.parent.name}"
    for table in ("recorded", "due"):
        database.execute(f"drop table if exists temp.{table}")


def _values(records: Sequence[JournalRecord]) -> Iterator[tuple[str, int, float, int]]:
    """Yield the metrics of every step's record as rows of MLflow's database."""
    for record in records:
        for name, value in record.metrics.items() if record.step is not None else ():
            yield metric_key(name), record.step or 0, _stored(value), round(record.time_s * 1000)


def _due_points(records: Sequence[JournalRecord]) -> Iterator[tuple[str, int]]:
    """Yield the (metric, step) pairs that MLflow must have.

    These are the points that count, except those that a feed could not send: it sends a metric's steps in rising order
    only, so after a rewind it skips a step that lacked the metric the first time if later steps were sent already.
    """
    highest: dict[str, int] = {}
    due = set()
    for record in records:
        for name in record.metrics if record.step is not None else ():
            step = record.step or 0
            if step > highest.get(name, -1):
                highest[name] = step
                due.add((name, step))
    points = SettledPoints()
    points.take(records)
    for point in points.all_so_far():
        if (point.name, point.step) in due:
            yield metric_key(point.name), point.step


def _stored(value: float) -> float:
    """Return a metric's value as MLflow's database stores it, with infinity for NaN, which does not equal itself."""
    if math.isnan(value):
        return math.inf
    return max(-sys.float_info.max, min(sys.float_info.max, value))


def _lifecycle(database: sqlite3.Connection, run_id: str) -> str | None:
    row = database.execute("select lifecycle_stage from runs where run_uuid = ?", (run_id,)).fetchone()
    return None if row is None else str(row[0])
