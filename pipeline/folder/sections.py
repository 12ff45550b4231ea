"""Config classes of a run and an experiment that can be imported without PyTorch.

The configs of tasks and systems are beside their networks, whose import takes seconds. A recipe is validated with the
classes of this module first, so that most typos are reported at once.
"""

from typing import Any

from pydantic import Field

from cluster.config import Config
from cluster.ray_session import RayConfig
from cluster.resources import ResourcesConfig
from data_prep.config import PrepConfig
from finetune.training.config import FitConfig
from pretrain.config import PretrainConfig

# Where a run executes and where its numbers are shown change no output, so they may differ between two
# commands on the same output folder.
KEYS_WITHOUT_EFFECT_ON_OUTPUTS = frozenset({"ray", "resources", "tracking"})


class TrackingConfig(Config):
    """Where a run is logged. `store` is an MLflow tracking URI; null stands for an SQLite file in the run's folder."""

    store: str | None = None
    experiment: str = "permcode"
    register_models: bool = True
    """Whether every task's best system is registered as an MLflow model, with its code."""


class PlaceConfig(Config):
    """Where a run executes and where its numbers are shown."""

    ray: RayConfig = Field(default_factory=RayConfig)
    resources: dict[str, ResourcesConfig] = Field(default_factory=dict)
    """What workers need, by the name of the stage or task; what is not named has the defaults."""
    tracking: TrackingConfig = Field(default_factory=TrackingConfig)


class TaskSections(Config):
    """The keys of `ExperimentConfig`; values whose classes need PyTorch are not validated."""

    task: Any = None
    systems: Any = None
    training: FitConfig = FitConfig()
    training_of: Any = None
    baseline: Any = None
    robustness: Any = None
    seed: Any = None
    num_seeds: Any = None


class RunSections(PlaceConfig):
    """The keys of `RunConfig`. `finetune.NAME: null` leaves out a task."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    prep: PrepConfig
    pretrain: PretrainConfig
    finetune: dict[str, TaskSections | None] = Field(default_factory=dict)


class ExperimentSections(TaskSections, PlaceConfig):
    """The keys of `ExperimentRunConfig`."""

    model: Any = None
    prep: Any = None
