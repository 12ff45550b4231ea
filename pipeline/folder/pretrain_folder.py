"""Finds the newest pretraining of a run and its config, for `permcode status`, `audit` and `trace`."""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cluster.errors import UserError
from cluster.storage import read_document
from pipeline.folder.layout import RunFiles, StageFiles
from pipeline.folder.prep_folder import newest_pretraining
from pipeline.folder.run_folder import read_config
from pipeline.folder.sections import RunSections
from pretrain.checkpoint.listing import step_folders
from pretrain.config import PretrainConfig
from pretrain.files import PretrainFiles


@dataclass(frozen=True)
class StatusFolder:
    """A run's folder `out` and the folder `pretrain` of its newest pretraining; one of them may be missing."""

    out: Path | None
    pretrain: Path | None

    @property
    def finished_stages(self) -> list[str]:
        """The names of the run's finished stages, in the order in which they were finished."""
        if self.out is None:
            return []
        found = sorted(self.out.glob(f"*-*/{StageFiles.RECORD}"), key=lambda path: path.stat().st_mtime_ns)
        return list(dict.fromkeys(path.parent.name.rsplit("-", 1)[0] for path in found))


@dataclass(frozen=True)
class Shape:
    """The config and the vocabulary size of a pretraining, from which its FLOPs are computed."""

    config: PretrainConfig
    vocab_size: int


def find_status_folder(folder: Path) -> StatusFolder:
    """Find the run and its newest pretraining, given a run's --out folder or a pretraining in it.

    Raises UserError for any other folder.
    """
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}: give a run's --out folder")
    if (folder / PretrainFiles.JOURNAL).is_file() and not (folder / RunFiles.CONFIG).is_file():
        out = folder.resolve().parent
        return StatusFolder(out if (out / RunFiles.CONFIG).is_file() else None, folder)
    newest = newest_pretraining(folder)
    if newest is None and not (folder / RunFiles.CONFIG).is_file():
        raise UserError(
            f"{folder} is not a run (no {RunFiles.CONFIG}, no {PretrainFiles.JOURNAL}): give a run's --out folder"
        )
    return StatusFolder(folder, newest)


def read_shape(found: StatusFolder) -> Shape | None:
    """Read the shape of the pretraining from its newest readable checkpoint, else from the run's config.

    Returns None where neither can be read, for example because a newer permcode wrote them.
    """
    folders = [] if found.pretrain is None else step_folders(found.pretrain / PretrainFiles.CHECKPOINTS)
    readers = [partial(_read_checkpoint_shape, folder) for folder in folders]
    if found.out is not None:
        readers.append(partial(_read_run_shape, found.out))
    for read in readers:
        with suppress(UserError, OSError, ValidationError, KeyError, TypeError):
            return read()
    return None


def _read_checkpoint_shape(folder: Path) -> Shape:
    config: dict[str, Any] = read_document(folder / "config.json")["pretrain"]
    return Shape(PretrainConfig.model_validate(config), read_document(folder / "model.json")["vocab_size"])


def _read_run_shape(out: Path) -> Shape:
    config = RunSections.model_validate(read_config(out / RunFiles.CONFIG))
    return Shape(config.pretrain, config.prep.tokenizer.vocab_size)
