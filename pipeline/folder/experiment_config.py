"""An experiment as `permcode finetune --from` is given it: what it starts from, whose corpus it reads."""

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
    """An experiment and where it runs."""

    model: Path
    """What systems start from: the folder of a run, a stage, a checkpoint or a model."""
    prep: Path | None = None
    """The prepared corpus, for tasks that make their data from one; None takes that of the run `model`."""

    @model_validator(mode="before")
    @classmethod
    def _without_systems_that_are_null(cls, values: Any) -> Any:
        return without_null_systems(values)

    @model_validator(mode="before")
    @classmethod
    def _one_mlflow_experiment_per_task(cls, values: Any) -> Any:
        """Unless another is asked for: runs of one task stand together, and numbers of others do not."""
        if not isinstance(values, Mapping):
            return values
        task, tracking = values.get("task"), values.get("tracking") or {}
        if isinstance(task, Mapping) and "kind" in task and isinstance(tracking, Mapping):
            return {**values, "tracking": {"experiment": f"permcode-{task['kind']}", **tracking}}
        return values


def prep_folder(config: ExperimentRunConfig) -> Path | None:
    """As asked for; else the one that the model was pretrained on, or the only finished one of its run.

    None where there is none. UserError where there are several and nothing tells which: in another one, repositories
    to be judged by may be some that the model was pretrained on.
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
                f"{run} holds several prepared corpora, and nothing tells which the model was pretrained on: say it "
                f"with prep=FOLDER ({', '.join(path.name for path in found)})"
            )
        if found:
            return found[0]
    return None


def _pretraining_of(model: Path) -> Path | None:
    try:
        folder = find_model_folder(model).folder
    except UserError:
        return None  # told by who uses the model
    return next((path for path in (folder, *folder.parents) if path.name.startswith("pretrain-")), None)


def pretrained_on(model: Path) -> tuple[str, ...]:
    """Locations of the prepared corpora that `model` was pretrained on; () where nothing tells, or one is gone."""
    pretrain = _pretraining_of(model.absolute())
    return () if pretrain is None else corpora_read_by(pretrain)


def checked_prep(folder: Path) -> Path:
    """A prep folder, or the one that a run's newest pretraining reads. Raises UserError when it is neither."""
    try:
        return find_prep_folder(folder).prep
    except UserError as error:
        raise UserError(f"prep={folder} is no finished prep folder: {error}") from None
