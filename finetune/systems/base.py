"""The base model that systems are built from, and the interface of their configs.

A system is built by its config's `build`, trained through its `learner` (None if there is nothing to train), saved as
its module's weights, and built again from the same config and `base` to load them.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from cluster.config import Config
from cluster.errors import UserError
from data_prep.tokenizer import CodeTokenizer
from finetune.modalities.base import ModalityName
from finetune.modalities.labelling import Labeller
from finetune.modalities.predicting import Predictor
from finetune.modalities.ranking import Ranker
from finetune.modalities.writing import Writer
from pretrain.inference.folders import ModelFiles
from pretrain.model.config import ModelConfig, PositionsConfig
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.randomness import key_seed
from pretrain.weights import ModelDescription

Start = Literal["pretrained", "scratch"]


@dataclass(frozen=True)
class Base:
    """The pretrained model. Systems start from its weights, or from random ones in its shape; all use its tokenizer."""

    description: ModelDescription
    tokenizer: CodeTokenizer
    weights: ModelFiles | None
    """The files of the weights; None if a system's own weights are loaded afterwards."""
    device: torch.device

    def network(
        self, start: Start, seed: int, positions: PositionsConfig | None = None
    ) -> TwoStreamTransformer:
        """Build the network in float32, on the device, in training mode.

        `positions` replace those of the base model's shape, for "scratch" only. Raises UserError for pretrained weights
        with other positions.
        """
        if start == "pretrained" and positions is not None:
            raise UserError(
                f"positions={positions.kind} cannot be put into pretrained weights: use start=scratch, or pretrain "
                "with pretrain.model.positions"
            )
        if start == "pretrained" and self.weights is not None:
            return self.weights.build(self.description).to(self.device)
        torch.manual_seed(key_seed(seed, "scratch-weights"))
        shape = self.shape(positions).config
        return TwoStreamTransformer(shape, self.description.vocab_size).to(self.device)

    def shape(self, positions: PositionsConfig | None) -> ModelDescription:
        """Return the base model's description, or the same with other positions."""
        if positions is None:
            return self.description
        values = self.description.config.model_dump() | {"positions": positions.model_dump()}
        if positions.kind.startswith("absolute"):
            values["memory_tokens"] = 0
        return replace(self.description, config=ModelConfig.model_validate(values))


class SystemConfigBase(Config):
    """The settings of a system. A subclass has a `kind`, its name in recipes."""

    if TYPE_CHECKING:

        @property
        def kind(self) -> str:
            """The name of this kind of system in recipes."""
            ...

    modality: ClassVar[ModalityName]
    learns: ClassVar[bool]
    """Whether it is trained in steps."""

    def needed_positions(self) -> dict[str, int]:
        """Return the most positions of the pretrained network that a text needs, by the setting that determines them.

        Empty for systems that do not start from the pretrained weights.
        """
        return {}

    @abstractmethod
    def build(self, base: Base, data: Any, seed: int) -> Any:
        """Build the System before training, from data of its modality.

        Raises UserError for settings that do not fit the base model or the data.
        """


System = Writer | Ranker | Labeller | Predictor
