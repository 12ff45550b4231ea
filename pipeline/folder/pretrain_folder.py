"""Which pretraining `permcode status` is asked about, and how it is configured."""

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
    """`out` is the run's folder, `pretrain` its newest pretraining; one of them may be missing."""

    out: Path | None
    pretrain: Path | None

    @property
    def finished_stages(self) -> list[str]:
        """Those of the run's stages that are finished, in the order in which they were."""
        if self.out is None:
            return []
        found = sorted(self.out.glob(f"*-*/{StageFiles.RECORD}"), key=lambda path: path.stat().st_mtime_ns)
        return list(dict.fromkeys(path.parent.name.rsplit("-", 1)[0] for path in found))


@dataclass(frozen=True)
class Shape:
    """What is computed."""

    config: PretrainConfig
    vocab_size: int


def find_status_folder(folder: Path) -> StatusFolder:
    """`folder` is a run's --out folder or a pretraining in it. UserError for anything else."""
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}: give a run's --out folder")
    if (folder / PretrainFiles.JOURNAL).is_file() and not (folder / RunFiles.CONFIG).is_file():
        out = folder.resolve().parent
        return StatusFolder(out if (out / RunFiles.CONFIG).is_file() else None, folder)
    newest = newest_pretraining(folder)
    if newest is None and not (folder / RunFiles.CONFIG).is_file():
        raise UserError(
            f"{folder} is no run (no {RunFiles.CONFIG}, no {PretrainFiles.JOURNAL}): give a run's --out folder"
        )
    return StatusFolder(folder, newest)


def read_shape(found: StatusFolder) -> Shape | None:
    """Model, batch and vocabulary of the pretraining, of its newest commit that tells them, else of the run's config.

    None where nothing tells them yet, or a newer permcode did.
    """
    commits = [] if found.pretrain is None else step_folders(found.pretrain / PretrainFiles.CHECKPOINTS)
    tellers = [partial(_of_commit, commit) for commit in commits]
    if found.out is not None:
        tellers.append(partial(_of_run, found.out))
    for tell in tellers:
        with suppress(UserError, OSError, ValidationError, KeyError, TypeError):
            return tell()
    return None


def _of_commit(commit: Path) -> Shape:
    config: dict[str, Any] = read_document(commit / "config.json")["pretrain"]
    return Shape(PretrainConfig.model_validate(config), read_document(commit / "model.json")["vocab_size"])


def _of_run(out: Path) -> Shape:
    config = RunSections.model_validate(read_config(out / RunFiles.CONFIG))
    return Shape(config.pretrain, config.prep.tokenizer.vocab_size)
