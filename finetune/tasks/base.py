"""The interface of a task: where its data comes from, and how predictions are evaluated.

A task and its config class are in one file. The harness loads the data once, gives every system the same data, and
calls `evaluate` on what each system wrote, ranked, labelled or predicted.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from cluster.config import Config
from finetune.modalities.base import ModalityName
from finetune.modalities.labelling import LabellingTask
from finetune.modalities.predicting import PredictingTask
from finetune.modalities.ranking import RankingTask
from finetune.modalities.writing import WritingTask


class TaskConfigBase(Config):
    """The settings of a task. Every subclass has a `kind`, its name in recipes."""

    if TYPE_CHECKING:

        @property
        def kind(self) -> str:
            """The name of this kind of task in recipes."""
            ...

    modality: ClassVar[ModalityName]
    has_suffix: ClassVar[bool] = False
    """Whether there may be text after the one to write, as with holes."""
    not_of_the_test: ClassVar[frozenset[str]] = frozenset(
        {"folder", "train", "valid", "test", "max_train", "max_valid", "max_test"}
    )
    """Settings that affect only training, or whose effect is visible in the test items themselves."""

    def test_settings(self) -> dict[str, Any]:
        """Return all settings except `not_of_the_test`: with the test items, they define what a result means."""
        dumped = self.model_dump(mode="json")
        return {name: value for name, value in dumped.items() if name not in self.not_of_the_test}

    @abstractmethod
    def build(self) -> "Task":
        """Build the task. Raise UserError if the settings do not fit together."""


Task = WritingTask | RankingTask | LabellingTask | PredictingTask
