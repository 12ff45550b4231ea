"""Lookup of a model's files in a folder that a user names: of a run, a stage, a checkpoint or a model."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from cluster.errors import UserError
from cluster.storage import read_document
from pretrain.checkpoint.compatibility import IDENTITY_NAME
from pretrain.checkpoint.listing import step_folders
from pretrain.checkpoint.reading import load_weights
from pretrain.checkpoint.verify import find_damage, newest_valid
from pretrain.files import PretrainFiles
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.orders.config import ObjectiveConfig
from pretrain.weights import ModelDescription, build_model, check_model_folder, model_with

_MODEL_PLACES = (".", "model", "seed-0/model", "pretrained/seed-0/model")
"""The model's folder inside that of a model, a pretraining or seed, a system, and a task."""
_SYSTEM_NAME = "system.json"
"""A file in the model folder of every finetuned system."""

OnDamaged = Callable[[str], None]
"""Called with a line about each damaged checkpoint that is skipped."""


@dataclass(frozen=True)
class ModelFiles:
    """A model folder or a checkpoint: both hold all files that are needed to use the model."""

    folder: Path
    description: Path
    is_checked: bool = False
    """Whether the checksums of all files were verified."""

    @property
    def is_checkpoint(self) -> bool:
        """Whether this is a checkpoint of an unfinished training."""
        return self.description.name == "model.json"

    @property
    def tokenizer(self) -> Path:
        """The model's tokenizer file."""
        return self.folder / "tokenizer.json"

    def objective(self) -> ObjectiveConfig | None:
        """Return the mixture of orders that the model was pretrained on; None where the folder does not say."""
        folders = [self.folder]
        if not self.is_checkpoint:
            folders = step_folders(self.folder.absolute().parent / PretrainFiles.CHECKPOINTS)
        for folder in folders:
            with suppress(UserError, OSError, ValidationError, KeyError, TypeError):
                stored = read_document(folder / IDENTITY_NAME)["pretrain"]["objective"]
                return ObjectiveConfig.model_validate(stored)
        return None

    def checked_description(self) -> ModelDescription:
        """Verify the files, unless they were, and return the description. Raises UserError for a damaged file."""
        if not self.is_checkpoint:
            return check_model_folder(self.folder)
        if not self.is_checked and (problem := find_damage(self.folder)) is not None:
            raise UserError(f"checkpoint {self.folder}: {problem}; use another checkpoint")
        return ModelDescription.read(self.description)

    def build(self, description: ModelDescription) -> TwoStreamTransformer:
        """Build the network with its weights. Raises UserError when they cannot be read or are of another network."""
        if self.is_checkpoint:
            return model_with(description, load_weights(self.folder), self.folder)
        return build_model(description, self.folder)


def find_model_folder(path: Path, on_damaged: OnDamaged = lambda text: None) -> ModelFiles:
    """Find the model of `path`.

    That is the model folder or checkpoint itself; in the folder of a pretraining stage its model, or its newest valid
    checkpoint before there is one; in the folder of a task, a system or a seed the network that it finetuned (a task's:
    of its system `pretrained`; without a seed the first one's); in a run's folder its newest pretraining stage with a
    model, or else with a usable checkpoint. `on_damaged` is called for checkpoints that are skipped. Raises UserError
    when there is no model, or only checkpoints that cannot be used.
    """
    if not path.is_dir():
        raise UserError(f"{path} is no folder: give a run's folder, a stage's, a checkpoint's or a model's")
    found = _model_at(path) or _newest_stage(path) or _checkpoint_of(path, on_damaged)
    if found is None:
        found = _newest_checkpoint(_newest_first(path.glob("pretrain-*")), on_damaged)
    if found is None and any((path / inner / _SYSTEM_NAME).is_file() for inner in _MODEL_PLACES):
        raise UserError(
            f"{path} holds a finetuned system whose network cannot be used by itself (LoRA keeps it in parts, some "
            "systems have none, earlier versions did not describe it): use `permcode predict` or `permcode serve`"
        )
    if found is None:
        raise UserError(
            f"{path} holds no model: give the folder of a run that has pretrained up to its first checkpoint, "
            "a stage's, a checkpoint's or a model's"
        )
    return found


def checked_model(path: Path, on_damaged: OnDamaged | None = None) -> tuple[ModelFiles, ModelDescription]:
    """Find the model of `path` (see `find_model_folder`), verify all its files, and return them with its description.

    Raises UserError when there is none or a file is damaged.
    """
    files = find_model_folder(path, on_damaged or (lambda text: None))
    return files, files.checked_description()


def _model_at(path: Path) -> ModelFiles | None:
    if (path / "COMMIT.json").is_file():
        return _checkpoint_files(path)
    for inner in _MODEL_PLACES:
        folder = path / inner
        if (folder / PretrainFiles.MODEL_CONFIG).is_file():
            return ModelFiles(folder, folder / PretrainFiles.MODEL_CONFIG)
    return None


def _newest_stage(run: Path) -> ModelFiles | None:
    models = _newest_first(run.glob(f"pretrain-*/model/{PretrainFiles.MODEL_CONFIG}"))
    return _model_at(models[0].parent) if models else None


def _checkpoint_of(stage: Path, on_damaged: OnDamaged) -> ModelFiles | None:
    checkpoint = newest_valid(stage / "checkpoints", lambda damaged: on_damaged(str(damaged)))
    return None if checkpoint is None else _checkpoint_files(checkpoint, is_checked=True)


def _newest_checkpoint(stages: Iterable[Path], on_damaged: OnDamaged) -> ModelFiles | None:
    """Return the checkpoint of the first stage that has one. Raises the first stage's error if none can be used."""
    errors: list[UserError] = []
    for stage in stages:
        try:
            found = _checkpoint_of(stage, on_damaged)
        except UserError as error:
            errors.append(error)
            continue
        if found is not None:
            for problem in errors:
                on_damaged(f"{problem} (skipped; using {found.folder})")
            return found
    if errors:
        raise errors[0]
    return None


def _checkpoint_files(folder: Path, is_checked: bool = False) -> ModelFiles:
    if not (folder / "model.json").is_file():
        raise UserError(f"checkpoint {folder} has no model.json: use the model of a finished run")
    return ModelFiles(folder, folder / "model.json", is_checked)


def _newest_first(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)
