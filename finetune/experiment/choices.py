"""Every kind of task and of system, and what is made of their configs."""

from typing import Annotated, Any

from pydantic import Field

from cluster.errors import UserError
from finetune.systems.base import Base, System
from finetune.systems.rankers import bi_encoder
from finetune.systems.rankers import lexical as lexical_ranker
from finetune.systems.writers import permutation_lm, transformer
from finetune.tasks.base import Asks, Task
from finetune.tasks.repair import Repair, RepairConfig
from finetune.tasks.translation import Translation, TranslationConfig

TaskConfig = Annotated[TranslationConfig | RepairConfig, Field(discriminator="kind")]
SystemConfig = Annotated[
    permutation_lm.PermutationWriterConfig
    | transformer.TransformerWriterConfig
    | bi_encoder.BiEncoderConfig
    | lexical_ranker.LexicalRankerConfig,
    Field(discriminator="kind"),
]

_TASKS: dict[type, tuple[Asks, Any]] = {
    TranslationConfig: ("write", Translation),
    RepairConfig: ("write", Repair),
}
_SYSTEMS: dict[type, tuple[Asks, bool, Any]] = {
    permutation_lm.PermutationWriterConfig: ("write", True, permutation_lm.build),
    transformer.TransformerWriterConfig: ("write", True, transformer.build),
    bi_encoder.BiEncoderConfig: ("rank", True, bi_encoder.build),
    lexical_ranker.LexicalRankerConfig: ("rank", False, lexical_ranker.build),
}
"""By config: what the system is asked for, whether it learns by steps, how it is built."""


def asks_for(config: Any) -> Asks:
    """What a task asks for, or a system is asked for."""
    asks: Asks = _TASKS[type(config)][0] if type(config) in _TASKS else _SYSTEMS[type(config)][0]
    return asks


def task_of(config: Any) -> Task:
    """The task of a config."""
    task: Task = _TASKS[type(config)][1](config)
    return task


def learns(config: Any) -> bool:
    """Whether a system is trained."""
    return _SYSTEMS[type(config)][1]


def build_system(config: Any, base: Base, data: Any, seed: int) -> System:
    """The system before training. Raises UserError for settings that do not fit the base model or the data."""
    system: System = _SYSTEMS[type(config)][2](config, base, data, seed)
    if learns(config) and system.learner is None:
        raise UserError(f"the system {config.kind} has nothing to train")
    return system
