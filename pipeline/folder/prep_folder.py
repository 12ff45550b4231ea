"""Finds the prep folder for a command that is given a run's folder or a prep folder."""

from dataclasses import dataclass
from pathlib import Path

from cluster.errors import UserError
from cluster.storage import read_document
from data_prep.finished.manifest import MANIFEST_NAME
from pipeline.folder.layout import RunFiles
from pipeline.folder.stage_record import read_record
from pretrain.checkpoint.compatibility import IDENTITY_NAME
from pretrain.data.config import DataConfig
from pretrain.files import PretrainFiles


@dataclass(frozen=True)
class PrepFolder:
    """A finished prep folder, and the folder of the run that it is in, if any."""

    prep: Path
    run: Path | None


def find_prep_folder(folder: Path) -> PrepFolder:
    """Find the finished prep folder that `folder` is, that it is the `shards` of, or that the run `folder` holds.

    A run whose corpus changed has several: the one that its newest pretraining reads is returned, else the newest.
    Raises UserError if there is none.
    """
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}: give a run's --out folder or a prep folder in it")
    folder = folder.resolve()
    if folder.name == "shards" and _is_finished(folder.parent):
        folder = folder.parent
    if _is_finished(folder):
        run = folder.parent if (folder.parent / RunFiles.CONFIG).is_file() else None
        return PrepFolder(folder, run)
    found = [path for path in folder.glob("prep-*") if _is_finished(path)]
    if not found:
        raise UserError(
            f"{folder} is not a finished prep folder and holds none: give the --out folder of a run whose prep is done"
        )
    newest = max(found, key=lambda path: ((path / MANIFEST_NAME).stat().st_mtime_ns, path.name))
    pretrain = newest_pretraining(folder)
    return PrepFolder((pretrain and prep_read_by(pretrain)) or newest, folder)


def prep_read_by(pretrain: Path) -> Path | None:
    """Return the finished prep folder that a run's pretraining reads; None if it is not known or no longer exists."""
    run = pretrain.resolve().parent
    if (pretrain / PretrainFiles.PREP).is_file():
        name = str(read_document(pretrain / PretrainFiles.PREP).get("folder"))
        found = [run / name] if name.startswith("prep-") else []
    else:
        record = read_record(pretrain)
        key = record.inputs.get("prep", "") if record is not None else ""
        found = [path for path in run.glob("prep-*") if key.startswith(path.name.removeprefix("prep-"))]
    return next((path for path in found if _is_finished(path)), None)


def corpora_read_by(pretrain: Path) -> tuple[str, ...]:
    """Return the locations of all prepared corpora that a run's pretraining reads.

    Returns () where they are not known or one no longer exists.
    """
    prep, record = prep_read_by(pretrain), read_record(pretrain)
    identities = sorted(pretrain.glob(f"checkpoints/step-*/{IDENTITY_NAME}"))
    if prep is None or (record is None and not identities):
        return ()
    config = read_document(identities[-1])["pretrain"] if record is None else record.config
    return DataConfig.model_validate(config.get("data", {})).locations(str(prep))


def _is_finished(folder: Path) -> bool:
    return (folder / MANIFEST_NAME).is_file()


def newest_pretraining(run: Path) -> Path | None:
    """Return the pretraining folder whose journal was written last; None if no pretraining was started."""
    begun = [path.parent for path in run.glob(f"pretrain-*/{PretrainFiles.JOURNAL}")]
    return max(begun, key=lambda path: (path / PretrainFiles.JOURNAL).stat().st_mtime_ns, default=None)
