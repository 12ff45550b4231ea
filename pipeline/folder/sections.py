"""The sections of a run's and an experiment's config whose classes need no PyTorch.

The kinds of tasks and systems stand beside their networks, and importing those takes seconds. A recipe is checked
against these classes first, so that most typos are told at once.
"""

from typing import Any

from pydantic import Field

from cluster.config import Config
from cluster.ray_session import RayConfig
from data_prep.config import PrepConfig
from finetune.training.config import FitConfig
from pretrain.config import PretrainConfig

# Where a run executes and where its numbers are shown change no output, so they may differ between two
# commands on the same output folder.
KEYS_WITHOUT_EFFECT_ON_OUTPUTS = frozenset({"ray", "tracking"})


class TrackingConfig(Config):
    """`store`: an MLflow tracking URI (`http://HOST:5000`); null is an SQLite file in the output folder."""

    store: str | None = None
    experiment: str = "permcode"
    register_models: bool = True
    """Log every task's best system as an MLflow model with its code, and make it the champion if it is."""


class PlaceConfig(Config):
    """Where a run executes and where its numbers are shown."""

    ray: RayConfig = Field(default_factory=RayConfig)
    tracking: TrackingConfig = Field(default_factory=TrackingConfig)


class TaskSections(Config):
    """The keys of `ExperimentConfig`; those whose values need PyTorch are not looked into."""

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
