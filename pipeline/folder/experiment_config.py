"""The config of `permcode finetune --from`: an experiment, its base model and its corpus."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import model_validator

from cluster.errors import UserError
from data_prep.finished.manifest import MANIFEST_NAME
from finetune.experiment.config import ExperimentConfig
from pipeline.folder.config import without_null_systems
from pipeline.folder.prep_folder import corpora_read_by, find_prep_folder, prep_read_by
from pipeline.folder.sections import PlaceConfig
from pretrain.inference.folders import find_model_folder


class ExperimentRunConfig(ExperimentConfig, PlaceConfig):
    """An experiment with its base model, its corpus, and where it runs."""

    model: Path
    """The base model: the folder of a run, a stage, a checkpoint or a model."""
    prep: Path | None = None
    """The prepared corpus, for tasks that make their data from one. None stands for the corpus of the run `model`."""

    @model_validator(mode="before")
    @classmethod
    def _leave_out_null_systems(cls, values: Any) -> Any:
        return without_null_systems(values)

    @model_validator(mode="before")
    @classmethod
    def _set_mlflow_experiment(cls, values: Any) -> Any:
        """Use one MLflow experiment per kind of task, unless the config names one."""
        if not isinstance(values, Mapping):
            return values
        task, tracking = values.get("task"), values.get("tracking") or {}
        if isinstance(task, Mapping) and "kind" in task and isinstance(tracking, Mapping):
            return {**values, "tracking": {"experiment": f"permcode-{task['kind']}", **tracking}}
        return values


def prep_folder(config: ExperimentRunConfig) -> Path | None:
    """Return the configured corpus, else the one the model was pretrained on, else the only finished one of its run.

    Returns None where there is none. Raises UserError where there are several and it is not known which one the model
    was pretrained on: with another one, test repositories could be among the model's training data.
    """
    if config.prep is not None:
        return checked_prep(config.prep)
    model = config.model.absolute()
    pretrain = _pretraining_of(model)
    if pretrain is not None and (read := prep_read_by(pretrain)) is not None:
        return read
    for run in (model, model.parent, model.parent.parent):
        found = sorted(path.parent for path in run.glob(f"prep-*/{MANIFEST_NAME}"))
        if len(found) > 1:
            raise UserError(
                f"{run} holds several prepared corpora, and it is not known which one the model was pretrained on: "
                f"give prep=FOLDER ({', '.join(path.name for path in found)})"
            )
        if found:
            return found[0]
    return None


def _pretraining_of(model: Path) -> Path | None:
    try:
        folder = find_model_folder(model).folder
    except UserError:
        return None  # reported where the model is loaded
    return next((path for path in (folder, *folder.parents) if path.name.startswith("pretrain-")), None)


def pretrained_on(model: Path) -> tuple[str, ...]:
    """Return the locations of the prepared corpora that `model` was pretrained on.

    Returns () where they are not known or one no longer exists.
    """
    pretrain = _pretraining_of(model.absolute())
    return () if pretrain is None else corpora_read_by(pretrain)


def checked_prep(folder: Path) -> Path:
    """Return `folder` if it is a prep folder, or the one that the newest pretraining of the run `folder` reads.

    Raises UserError if it is neither.
    """
    try:
        return find_prep_folder(folder).prep
    except UserError as error:
        raise UserError(f"prep={folder} is not a finished prep folder: {error}") from None
