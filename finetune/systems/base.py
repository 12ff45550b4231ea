"""What every system is built from and has to offer.

A system is built by its config's `build`, trained through its `learner` (None where there is nothing to train), saved
as its module's weights, and built again from the same config and `base` to load them.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from cluster.config import Config
from cluster.errors import UserError
from data_prep.tokenizer import CodeTokenizer
from finetune.examples import Code
from pretrain.inference.folders import ModelFiles
from pretrain.model.config import ModelConfig, PositionsConfig
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.randomness import key_seed
from pretrain.weights import ModelDescription

Start = Literal["pretrained", "scratch"]
Asks = Literal["write", "rank", "label", "predict"]
"""What a task asks of a system: its modality, see `finetune.modalities`."""
OnProgress = Callable[[int], None]
"""Told how many items are done so far: texts to write, to label or to predict, queries to rank for."""


@dataclass(frozen=True)
class Base:
    """The pretrained model: systems start from it, or from random weights in its shape; all use its tokenizer."""

    description: ModelDescription
    tokenizer: CodeTokenizer
    weights: ModelFiles | None
    """Where they lie; None where a system's own weights are loaded afterwards."""
    device: torch.device

    def network(
        self, start: Start, seed: int, positions: PositionsConfig | None = None
    ) -> TwoStreamTransformer:
        """float32, on the device, in training mode; `positions`, for "scratch" alone, are other ones than the shape's.

        Raises UserError for pretrained weights with other positions.
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
        """The base model's, or the same with other positions."""
        if positions is None:
            return self.description
        # Finetuning reads every text at once: nothing needs the memory that absolute positions cannot have.
        values = self.description.config.model_dump() | {
            "positions": positions.model_dump(), "memory_tokens": 0
        }  # fmt: skip
        return replace(self.description, config=ModelConfig.model_validate(values))


class SystemConfigBase(Config):
    """The settings of a system. A subclass has a `kind`, its name in recipes."""

    asks: ClassVar[Asks]
    learns: ClassVar[bool]
    """Whether it is trained in steps."""

    @abstractmethod
    def build(self, base: Base, data: Any, seed: int) -> Any:
        """Build the System before training, from data of its modality.

        Raises UserError for settings that do not fit the base model or the data.
        """


class Learner(Protocol):
    """A network and how training examples become its loss; `finetune.training.finetuner` trains it."""

    @property
    def module(self) -> nn.Module:
        """`module(batch)` is the mean loss over what the batch predicts, a scalar."""
        ...

    @property
    def lengths_tokens(self) -> Sequence[int]:
        """Of every training example, source and target together: batches are made of like ones."""
        ...

    def batch(self, indices: Sequence[int], draw: int) -> Any:
        """What `module` takes for these examples. Random choices are a function of `draw` alone."""
        ...

    def depth(self, name: str) -> int:
        """How many layers a parameter lies below the head, for layer-wise learning rates."""
        ...


class Writer(Protocol):
    """A system that writes a text for a text."""

    @property
    def learner(self) -> Learner | None:
        """What is trained; None where nothing is."""
        ...

    def write(self, sources: Sequence[tuple[str, str | None]], on_progress: OnProgress) -> list[str]:
        """One text per (source, suffix); suffix is None but for infilling. The module is in evaluation mode."""
        ...


class Ranker(Protocol):
    """A system that ranks candidates for queries."""

    @property
    def learner(self) -> Learner | None:
        """What is trained; None where nothing is."""
        ...

    def scores(
        self, queries: Sequence[str], candidates: Sequence[str], on_progress: OnProgress
    ) -> NDArray[np.float64]:
        """[number of queries, number of candidates], higher is better."""
        ...


class Labeller(Protocol):
    """A system that gives labels."""

    @property
    def learner(self) -> Learner | None:
        """What is trained; None where nothing is."""
        ...

    def probabilities(self, texts: Sequence[tuple[str, ...]], on_progress: OnProgress) -> NDArray[np.float64]:
        """[number of items, number of labels]."""
        ...


class Predictor(Protocol):
    """A system that predicts the tokens of code."""

    @property
    def learner(self) -> Learner | None:
        """What is trained; None where nothing is."""
        ...

    def ranks(self, items: Sequence[Code], on_progress: OnProgress) -> list[NDArray[np.float64]]:
        """Of every item: the rank, from 1, of each of its lexemes among the choices given all that stands before it;
        infinite for what is no choice.
        """
        ...


System = Writer | Ranker | Labeller | Predictor


def cut_of(system: System) -> dict[str, int]:
    """How many of the texts a system was given were longer than it reads or writes, by what they were."""
    return dict(getattr(system, "cut", {}))
