"""Which prep folder a command means that is given a run's folder or a prep folder."""

from dataclasses import dataclass
from pathlib import Path

from cluster.errors import UserError
from data_prep.manifest import MANIFEST_NAME
from pipeline.run_folder import CONFIG_NAME
from pipeline.stage_record import read_record


@dataclass(frozen=True)
class PrepFolder:
    """A finished prep folder, and the run's folder that it lies in, if it lies in one."""

    prep: Path
    run: Path | None


def find_prep_folder(folder: Path) -> PrepFolder:
    """The finished prep folder that `folder` is (or whose `shards` it is), or the one of the run that it is.

    A run whose corpus changed has several: the one that its newest pretraining read, else the newest. UserError
    when there is none.
    """
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}: give a run's --out folder or a prep folder in it")
    folder = folder.resolve()
    if folder.name == "shards" and _is_finished(folder.parent):
        folder = folder.parent
    if _is_finished(folder):
        run = folder.parent if (folder.parent / CONFIG_NAME).is_file() else None
        return PrepFolder(folder, run)
    found = [path for path in folder.glob("prep-*") if _is_finished(path)]
    if not found:
        raise UserError(
            f"{folder} is no finished prep folder and holds none: give the --out folder of a run whose prep is done"
        )
    read = _read_by_newest_pretraining(folder)
    newest = max(found, key=lambda path: ((path / MANIFEST_NAME).stat().st_mtime_ns, path.name))
    return PrepFolder(read if read in found else newest, folder)


def _is_finished(folder: Path) -> bool:
    return (folder / MANIFEST_NAME).is_file()


def _read_by_newest_pretraining(run: Path) -> Path | None:
    records = [record for path in run.glob("pretrain-*") if (record := read_record(path)) is not None]
    if not records:
        return None
    key = max(records, key=lambda record: record.finished_at).inputs["prep"]
    return next(
        (path for path in run.glob("prep-*") if key.startswith(path.name.removeprefix("prep-"))), None
    )
