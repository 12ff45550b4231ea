"""A classifier of one text, or of two: an encoder with a small network on top.

The vectors a and b of two texts are combined as [a, b, |a - b|, a * b] (Conneau et al. 2017, section 3.1). The texts
are read separately, or together with `<sep>` between them, so that each token attends to both.

Shapes: B items, C labels, E width of a vector, F width of the head's input.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from cluster.errors import UserError
from data_prep.tokenizer import CodeTokenizer
from finetune.modalities.base import ModalityName, OnProgress
from finetune.modalities.labelling import Labelled, LabellingData
from finetune.systems.base import Base, SystemConfigBase
from finetune.systems.text_encoder import EncoderConfig, EncoderInput, TextEncoder, Truncator, check_length
from pretrain.model.dropout import Dropout
from pretrain.model.precision import at_least_float32
from pretrain.randomness import key_seed

SEPARATOR = "<sep>"
_AT_ONCE = 32
Row = NDArray[np.int64]
Texts = tuple[str, ...]


class ClassifierConfig(EncoderConfig, SystemConfigBase):
    """The settings of the encoder and of the network on top."""

    modality: ClassVar[ModalityName] = "label"
    learns: ClassVar[bool] = True

    kind: Literal["classifier"] = "classifier"
    text_tokens: PositiveInt = 256
    """Each text is truncated to this many tokens."""
    around: str | None = None
    """A truncated text that contains this string keeps the tokens around it, not the first ones: for a cloze, whose
    `<mask>` must be kept."""
    reading: Literal["apart", "together"] = "apart"
    """How two texts are read: each by itself, or as one sequence, so that each token attends to both."""
    hidden_dim: PositiveInt = 256
    """Width of the network between vectors and labels."""
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    """Dropout of the vectors and of the hidden layer."""

    def needed_positions(self) -> dict[str, int]:
        """See `SystemConfigBase`."""
        return {"text_tokens": self.text_tokens} if self.start == "pretrained" else {}

    def build(self, base: Base, data: LabellingData, seed: int) -> "ClassifierLabeller":
        """Build a classifier with the data's labels, at least two; without training items its learner is None.

        Raises UserError if the encoder's positions do not reach the configured length, or if the number of texts of an
        item is unknown or above two.
        """
        num_texts, num_labels = data.shape()
        if not num_texts:
            raise UserError("there are no labelled items to train on or to evaluate")
        if num_texts not in (1, 2):
            raise UserError(f"items have {num_texts} texts: a classifier labels one text or two")
        together = num_texts == 2 and self.reading == "together"
        check_length(self, base, 2 * self.text_tokens + 1 if together else self.text_tokens, "text_tokens")
        truncator = Truncator(base.tokenizer, base.device)
        reader = TextReader(self, base.tokenizer, truncator, num_texts)
        encoder = TextEncoder.build(self, base, seed)
        torch.manual_seed(key_seed(seed, "classifier-head"))
        separator_id = base.tokenizer.special_id(SEPARATOR)
        module = Classifier(self, encoder, num_texts, max(2, num_labels), separator_id).to(base.device)
        learner = LabelLearner(module, reader, data.train, base.device) if data.train else None
        return ClassifierLabeller(module, reader, truncator, learner)


@dataclass(frozen=True)
class LabelBatch:
    """Items as one or two encoder inputs, and their labels [B]."""

    inputs: tuple[EncoderInput, ...]
    label_B: Tensor


class Classifier(nn.Module):
    """The encoder and the head, with the loss."""

    def __init__(
        self,
        config: ClassifierConfig,
        encoder: TextEncoder,
        num_texts: int,
        num_labels: int,
        separator_id: int,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self._num_texts, self._separator_id = num_texts, separator_id
        width = encoder.pooling.width * (4 if num_texts == 2 else 1)
        self.head = nn.Sequential(
            Dropout(config.dropout),
            nn.Linear(width, config.hidden_dim),
            nn.GELU(),
            Dropout(config.dropout),
            nn.Linear(config.hidden_dim, num_labels),
        )

    def scores(self, inputs: Sequence[EncoderInput]) -> Tensor:
        """Return the logits [B, C] in float32."""
        if self._num_texts == 1:
            vector_BF = self.encoder(inputs[0])
        else:
            one_BE, other_BE = self._both(inputs)
            vector_BF = torch.cat([one_BE, other_BE, (one_BE - other_BE).abs(), one_BE * other_BE], dim=-1)
        first = self.head[1]
        assert isinstance(first, nn.Linear)
        return at_least_float32(self.head(vector_BF.to(first.weight.dtype)))

    def _both(self, inputs: Sequence[EncoderInput]) -> tuple[Tensor, Tensor]:
        if len(inputs) == 2:
            return self.encoder(inputs[0]), self.encoder(inputs[1])
        return self.encoder.both(inputs[0], self._separator_id)

    def forward(self, batch: LabelBatch) -> Tensor:
        """Return the mean cross-entropy in nats."""
        return functional.cross_entropy(self.scores(batch.inputs), batch.label_B)


class TextReader:
    """Tokenizes items: one row of tokens each, or two."""

    def __init__(
        self, config: ClassifierConfig, tokenizer: CodeTokenizer, truncator: Truncator, num_texts: int
    ) -> None:
        self._config, self._truncator, self._num_texts = config, truncator, num_texts
        self._separator = np.array([tokenizer.special_id(SEPARATOR)], dtype=np.int64)

    def rows(self, items: Sequence[Texts], what: str) -> list[tuple[Row, ...]]:
        """Return the rows of every item, one per encoder input; truncated texts are counted by `what`.

        Raises UserError for an item with another number of texts than this system labels.
        """
        for number, texts in enumerate(items, start=1):
            if len(texts) != self._num_texts:
                raise UserError(
                    f"item {number} has {len(texts)} texts, but this system labels items of {self._num_texts}"
                )
        of_all_sides = self._truncator.tokens(
            [texts[side] for side in range(self._num_texts) for texts in items],
            self._config.text_tokens,
            what,
            self._config.around,
        )
        sides = [of_all_sides[side * len(items) : (side + 1) * len(items)] for side in range(self._num_texts)]
        if self._num_texts == 2 and self._config.reading == "together":
            return [
                (np.concatenate([first, self._separator, second]),)
                for first, second in zip(*sides, strict=True)
            ]
        return list(zip(*sides, strict=True))

    def inputs(self, rows: Sequence[tuple[Row, ...]]) -> tuple[EncoderInput, ...]:
        """Return the rows as padded batches, one per encoder input."""
        return tuple(self._truncator.pad(side) for side in zip(*rows, strict=True))


class LabelLearner:
    """A `Learner` over labelled items."""

    def __init__(
        self, module: Classifier, reader: TextReader, items: Sequence[Labelled], device: torch.device
    ) -> None:
        self.module, self._reader, self._items, self._device = module, reader, items, device
        self._rows = reader.rows([item.texts for item in items], "train_texts")
        self.lengths_tokens = [sum(map(len, rows)) for rows in self._rows]

    def batch(self, indices: Sequence[int], draw: int) -> LabelBatch:
        """Return the batch of these items; nothing is random."""
        labels = torch.tensor([self._items[index].label for index in indices], device=self._device)
        return LabelBatch(self._reader.inputs([self._rows[index] for index in indices]), labels)

    def depth(self, name: str) -> int:
        """Return the number of layers between a parameter and the head."""
        inner = name.removeprefix("encoder.")
        return self.module.encoder.depth(inner) if inner != name else 0


class ClassifierLabeller:
    """A `Labeller` with a `Classifier`; `module` has its weights, trained or not."""

    def __init__(
        self, module: Classifier, reader: TextReader, truncator: Truncator, learner: LabelLearner | None
    ) -> None:
        self.module, self._reader, self._truncator, self.learner = module, reader, truncator, learner

    @property
    def cut(self) -> dict[str, int]:
        """The number of truncated texts, by kind of text."""
        return self._truncator.cut

    @torch.inference_mode()
    def probabilities(self, texts: Sequence[Texts], on_progress: OnProgress) -> NDArray[np.float64]:
        """Return the probabilities [number of items, C]; items of similar length are read together."""
        rows = self._reader.rows(texts, "texts")
        last = self.module.head[-1]
        assert isinstance(last, nn.Linear)
        found = np.zeros((len(rows), last.out_features))
        order = sorted(range(len(rows)), key=lambda number: sum(map(len, rows[number])))
        for first in range(0, len(order), _AT_ONCE):
            part = order[first : first + _AT_ONCE]
            with torch.autocast(last.weight.device.type, dtype=torch.bfloat16):
                score_BC = self.module.scores(self._reader.inputs([rows[number] for number in part]))
            found[part] = score_BC.double().softmax(dim=-1).cpu().numpy()
            on_progress(first + len(part))
        return found
