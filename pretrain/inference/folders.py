"""From what a user names (a run, a stage, a checkpoint, a model) to the files of one model."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import UserError
from pretrain.checkpoint.reading import load_weights
from pretrain.checkpoint.verify import find_damage, newest_valid
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.weights import CONFIG_NAME, ModelDescription, build_model, check_model_folder, model_with

_MODEL_PLACES = (".", "model", "seed-0/model", "pretrained/seed-0/model")
"""In a model's folder, a pretraining's or a seed's, a system's, a task's."""
_SYSTEM_NAME = "system.json"
"""Lies in the model folder of every finetuned system."""

OnDamaged = Callable[[str], None]
"""Told in one line of each damaged checkpoint that is passed over."""


@dataclass(frozen=True)
class ModelFiles:
    """A model folder, or a checkpoint: both hold all it takes to use the model."""

    folder: Path
    description: Path
    is_checked: bool = False
    """Whether all files have been compared with their checksums."""

    @property
    def is_checkpoint(self) -> bool:
        """Whether training was not over."""
        return self.description.name == "model.json"

    @property
    def tokenizer(self) -> Path:
        """The tokenizer the model reads."""
        return self.folder / "tokenizer.json"

    def build(self, description: ModelDescription) -> TwoStreamTransformer:
        """The network with its weights. Raises UserError when they cannot be read or are of another network."""
        if self.is_checkpoint:
            return model_with(description, load_weights(self.folder), self.folder)
        return build_model(description, self.folder)


def find_model_folder(path: Path, on_damaged: OnDamaged = lambda text: None) -> ModelFiles:
    """The model that `path` stands for.

    A model folder or a checkpoint stands for itself; the folder of a pretraining stage for its model, or its newest
    valid checkpoint while it has none; the folder of a task, of its system or of one seed for the network adapted by it
    (a task's: by its system `pretrained`; without a seed the first); a run's folder for its newest pretraining stage,
    one with a model first, then one with a usable checkpoint. Checkpoints passed over are named to `on_damaged`.
    Raises UserError when there is no model, or only checkpoints that cannot be used.
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
    """The files of the model that `path` stands for (see `find_model_folder`), all undamaged, and what it is.

    Raises UserError when there is none or a file is damaged.
    """
    files = find_model_folder(path, on_damaged or (lambda text: None))
    if not files.is_checkpoint:
        return files, check_model_folder(files.folder)
    if not files.is_checked:
        problem = find_damage(files.folder)
        if problem is not None:
            raise UserError(f"checkpoint {files.folder}: {problem}; use another checkpoint")
    return files, ModelDescription.read(files.description)


def _model_at(path: Path) -> ModelFiles | None:
    if (path / "COMMIT.json").is_file():
        return _checkpoint_files(path)
    for inner in _MODEL_PLACES:
        folder = path / inner
        if (folder / CONFIG_NAME).is_file():
            return ModelFiles(folder, folder / CONFIG_NAME)
    return None


def _newest_stage(run: Path) -> ModelFiles | None:
    models = _newest_first(run.glob(f"pretrain-*/model/{CONFIG_NAME}"))
    return _model_at(models[0].parent) if models else None


def _checkpoint_of(stage: Path, on_damaged: OnDamaged) -> ModelFiles | None:
    checkpoint = newest_valid(stage / "checkpoints", lambda damaged: on_damaged(str(damaged)))
    return None if checkpoint is None else _checkpoint_files(checkpoint, is_checked=True)


def _newest_checkpoint(stages: Iterable[Path], on_damaged: OnDamaged) -> ModelFiles | None:
    """Of the first stage that has one; the error of the first that has none to use, if all are like that."""
    errors: list[UserError] = []
    for stage in stages:
        try:
            found = _checkpoint_of(stage, on_damaged)
        except UserError as error:
            errors.append(error)
            continue
        if found is not None:
            for problem in errors:
                on_damaged(f"{problem} (passed over for {found.folder})")
            return found
    if errors:
        raise errors[0]
    return None


def _checkpoint_files(folder: Path, is_checked: bool = False) -> ModelFiles:
    if not (folder / "model.json").is_file():
        raise UserError(
            f"checkpoint {folder} does not say what model it is of: use the model of a finished run"
        )
    return ModelFiles(folder, folder / "model.json", is_checked)


def _newest_first(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)
