"""The config of a run: a recipe with its overrides applied."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, model_validator

from data_prep.config import PrepConfig
from finetune.experiment.config import ExperimentConfig
from pipeline.folder.sections import PlaceConfig
from pretrain.config import PretrainConfig
from pretrain.model.config import AbsoluteLearnedPositions

OTHER_STAGES = ("prep", "pretrain", "report")
"""The stages of a run that are not tasks."""


class RunConfig(PlaceConfig):
    """One run. `seed` fixes every random choice of every stage."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    prep: PrepConfig
    pretrain: PretrainConfig
    finetune: dict[str, ExperimentConfig] = Field(default_factory=dict)
    """The tasks that the pretrained model is finetuned on, by a name that the user chooses; each is a stage."""

    @model_validator(mode="before")
    @classmethod
    def _give_tasks_the_seed_of_the_run(cls, values: Any) -> Any:
        """Give the run's seed to tasks without one, and leave out tasks that are null (`finetune.NAME=null`)."""
        tasks = values.get("finetune") if isinstance(values, Mapping) else None
        if not isinstance(tasks, Mapping):
            return values
        seed = {"seed": values["seed"]} if _is_whole_number(values.get("seed")) else {}
        kept = {
            name: {**seed, **without_null_systems(task)} if isinstance(task, Mapping) else task
            for name, task in tasks.items()
            if task is not None
        }
        return {**values, "finetune": kept}

    @model_validator(mode="after")
    def _check_task_names(self) -> "RunConfig":
        for name in self.finetune:
            if name in OTHER_STAGES or not name.replace("_", "").isalnum() or not name.isascii():
                raise ValueError(
                    f"finetune.{name}: a task's name is made of letters, digits and _, and none of "
                    f"{', '.join(OTHER_STAGES)}: it names a folder"
                )
        return self

    @model_validator(mode="after")
    def _check_resources(self) -> "RunConfig":
        """Refuse resources of a stage that does not exist; the report has no workers."""
        known = ("prep", "pretrain", *self.finetune)
        for name in self.resources:
            if name not in known:
                raise ValueError(
                    f"resources.{name} names no stage with workers: these are {', '.join(known)}"
                )
        return self

    @model_validator(mode="after")
    def _check_positions(self) -> "RunConfig":
        """Refuse a task that needs more positions than the model has, before the pretraining instead of after it."""
        positions = self.pretrain.model.positions
        most = positions.max_positions if isinstance(positions, AbsoluteLearnedPositions) else None
        for name, task in self.finetune.items():
            for key, length_tokens in task.needed_positions():
                if most is not None and length_tokens > most:
                    raise ValueError(
                        f"finetune.{name}.{key} needs {length_tokens} positions, more than "
                        f"pretrain.model.positions.max_positions={most}: make one of them fit the other"
                    )
        return self


def _is_whole_number(value: Any) -> bool:
    """Return whether it is a whole number or the text of one. Anything else is reported for the run's own seed."""
    return isinstance(value, int) or (isinstance(value, str) and value.isdecimal())


def without_null_systems(values: Any) -> Any:
    """Return an experiment's values without the systems that are null (`systems.NAME=null`)."""
    systems = values.get("systems") if isinstance(values, Mapping) else None
    if not isinstance(systems, Mapping) or None not in systems.values():
        return values
    kept = {name: system for name, system in systems.items() if system is not None}
    training_of = values.get("training_of")
    if isinstance(training_of, Mapping):
        values = {**values, "training_of": {name: one for name, one in training_of.items() if name in kept}}
    return {**values, "systems": kept}
