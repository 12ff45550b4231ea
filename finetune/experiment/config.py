"""The configuration of an experiment."""

from collections.abc import Iterator
from typing import Any

from pydantic import Field, PositiveInt, model_validator

from cluster.config import Config
from finetune.experiment.kinds import SystemConfig, TaskConfig
from finetune.experiment.robustness import RobustnessConfig
from finetune.systems.labellers.zero_shot_cloze import ZeroShotClozeConfig
from finetune.tasks.cloze import ClozeConfig
from finetune.training.config import FitConfig


class ExperimentConfig(Config):
    """One task and the systems that are compared on it. All train on the same data, under the same budget."""

    task: TaskConfig
    systems: dict[str, SystemConfig] = Field(min_length=1)
    """The systems by name; you choose the names."""
    training: FitConfig = FitConfig()
    training_of: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """By system: the settings that replace those of `training`."""
    baseline: str | None = None
    """The system that the others are compared with; None selects the first that learns nothing, or else the first."""
    robustness: RobustnessConfig = RobustnessConfig()
    """The changes of the test code that measure each system's robustness."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """The seed of sampled and generated data, and the first of the systems' seeds."""
    num_seeds: PositiveInt = 1
    """How often every system that learns is trained: once per seed, from `seed` on."""

    @model_validator(mode="after")
    def _systems_fit_the_task(self) -> "ExperimentConfig":
        wanted = self.task.modality
        for name, system in self.systems.items():
            if system.modality != wanted:
                raise ValueError(
                    f"systems.{name}: {system.kind} can {system.modality}, but the task {self.task.kind} needs a "
                    f"system that can {wanted}"
                )
        return self

    @model_validator(mode="after")
    def _words_are_the_task_s(self) -> "ExperimentConfig":
        for name, system in self.systems.items():
            if isinstance(self.task, ClozeConfig) and isinstance(system, ZeroShotClozeConfig):
                words, labels = ", ".join(system.words), ", ".join(self.task.words)
                if words != labels:
                    raise ValueError(f"systems.{name}: its words ({words}) are not the task's ({labels})")
        return self

    @model_validator(mode="after")
    def _names_are_known(self) -> "ExperimentConfig":
        for name in [*self.training_of, *([self.baseline] if self.baseline else [])]:
            if name not in self.systems:
                raise ValueError(f"{name!r} is none of the systems {', '.join(self.systems)}")
        for name in self.training_of:
            self.training_of_system(name)
        for name in self.systems:
            if not name.replace("-", "").replace("_", "").isalnum():
                raise ValueError(
                    f"systems.{name}: a name is made of letters, digits, - and _: it names a folder"
                )
        return self

    def training_of_system(self, name: str) -> FitConfig:
        """Return `training` with the changes of `training_of`; a system with its own `learning_rate` does no search."""
        own = self.training_of.get(name, {})
        no_search = {"learning_rates": ()} if "learning_rate" in own else {}
        return FitConfig.model_validate(self.training.model_dump() | no_search | own)

    def needed_positions(self) -> Iterator[tuple[str, int]]:
        """Yield (key, tokens) for each length that systems with the pretrained model's positions read or write."""
        for name, system in self.systems.items():
            for key, needed_tokens in system.needed_positions().items():
                yield f"systems.{name}.{key}", needed_tokens

    def rates_to_try(self, name: str, seed: int) -> tuple[float, ...]:
        """Return the `learning_rates` that the job tries: only the first seed of a system that learns searches."""
        searches = seed == self.seed and self.systems[name].learns
        return self.training_of_system(name).learning_rates if searches else ()

    def seeds(self) -> range:
        """Return the seeds of the systems that learn."""
        return range(self.seed, self.seed + self.num_seeds)
