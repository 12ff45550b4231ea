"""Zero-shot cloze: the pretrained model's exact likelihood of each candidate for the hidden word, given both sides.

A permutation language model computes this likelihood without training for the task. If tokens of a candidate extend
over the word's ends (as in " max("), the same bytes around the word are scored for every candidate, so that all
candidates are compared by the probability of the same span given the same rest.

Shapes: N items, C candidates.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from cluster.errors import UserError
from data_prep.tokenizer import CodeTokenizer
from finetune.formats.labelled import MASK
from finetune.modalities.base import ModalityName, OnProgress
from finetune.modalities.labelling import LabellingData
from finetune.systems.base import Base, SystemConfigBase
from pretrain.inference.scored_text import score_parts
from pretrain.inference.text_ranges import ByteRange, tokens_reaching_into


class ZeroShotClozeConfig(SystemConfigBase):
    """The settings of a zero-shot cloze: the candidates, in the order of the task's labels."""

    modality: ClassVar[ModalityName] = "label"
    learns: ClassVar[bool] = False

    kind: Literal["zero_shot_cloze"] = "zero_shot_cloze"
    words: tuple[str, ...] = Field(default=("max", "min"), min_length=2)

    def build(self, base: Base, data: LabellingData, seed: int) -> "ZeroShotCloze":
        """Build the labeller. Raises UserError if the task's labels do not fit the words."""
        num_labels, num_words = data.shape()[1], len(self.words)
        if num_labels > num_words or data.num_labels not in (0, num_words):
            raise UserError(
                f"the task has {num_labels} labels, but zero_shot_cloze has {num_words} words "
                f"({', '.join(self.words)}): give it the task's words, in their order"
            )
        return ZeroShotCloze(self, base, seed)


class ZeroShotCloze:
    """A `Labeller` that is not trained."""

    learner = None

    def __init__(self, config: ZeroShotClozeConfig, base: Base, seed: int) -> None:
        if not all(config.words):
            raise UserError("words of a cloze must not be empty")
        self._config, self._tokenizer = config, base.tokenizer
        self._segment_tokens = base.description.segment_tokens
        self.module = base.network("pretrained", seed).eval()

    def probabilities(self, texts: Sequence[tuple[str, ...]], on_progress: OnProgress) -> NDArray[np.float64]:
        """Return the candidates' likelihoods [N, C] as shares of their sum.

        Raises UserError for an item that is not one text with one placeholder.
        """
        found_NC = np.zeros((len(texts), len(self._config.words)))
        for number, parts in enumerate(texts):
            score_C = np.array(self.log_likelihoods(parts))
            shifted_C = np.exp(score_C - score_C.max())
            found_NC[number] = shifted_C / shifted_C.sum()
            on_progress(number + 1)
        return found_NC

    def log_likelihoods(self, parts: tuple[str, ...]) -> list[float]:
        """Return the log-likelihood of each candidate at the placeholder, in nats."""
        if len(parts) != 1 or parts[0].count(MASK) != 1:
            raise UserError(f"a cloze item must be one text with {MASK} once in it")
        before, behind = (side.encode() for side in parts[0].split(MASK))
        words = [word.encode() for word in self._config.words]
        margins = common_margins(self._tokenizer, before, words, behind)
        return [self._log_likelihood(before, word, behind, margins) for word in words]

    def _log_likelihood(self, before: bytes, word: bytes, behind: bytes, margins: tuple[int, int]) -> float:
        part = ByteRange(len(before) - margins[0], len(before) + len(word) + margins[1])
        text = before + word + behind
        scored = score_parts(self.module, self._tokenizer, text, [part], self._segment_tokens)
        return scored.scores.log_likelihood


def common_margins(
    tokenizer: CodeTokenizer, before: bytes, words: Sequence[bytes], behind: bytes
) -> tuple[int, int]:
    """Return how many bytes (before, after) the word are scored with it: every candidate has token ends there."""
    lengths = [tokenizer.token_bytes[tokenizer.encode_bytes(before + word + behind)] for word in words]
    left, right = 0, 0
    while True:
        reached = (left, right)
        for word, num_bytes_T in zip(words, lengths, strict=True):
            wanted = ByteRange(len(before) - reached[0], len(before) + len(word) + reached[1])
            index_P = tokens_reaching_into(num_bytes_T, wanted)
            end_T = np.cumsum(num_bytes_T)
            first, last = end_T[index_P[0]] - num_bytes_T[index_P[0]], end_T[index_P[-1]]
            left = max(left, len(before) - int(first))
            right = max(right, int(last) - len(before) - len(word))
        if reached == (left, right):
            return reached
