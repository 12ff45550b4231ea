"""A bi-encoder: the same weights encode query and candidate as unit vectors; the score is their inner product.

Its loss is contrastive within the batch (InfoNCE, van den Oord et al. 2018): a query must find its own candidate among
those of the batch. With several workers or micro-batches, each has its own negatives.

Shapes: B matches of a batch, C = B (1 + hard negatives) candidates, Q queries, E width of a vector.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn import functional

from cluster.errors import UserError
from finetune.modalities.base import ModalityName, OnProgress
from finetune.modalities.ranking import Match, RankingData
from finetune.systems.base import Base, SystemConfigBase
from finetune.systems.rankers.bm25 import Bm25
from finetune.systems.text_encoder import (
    EncoderConfig,
    EncoderInput,
    TextEncoder,
    Truncator,
    check_length,
    encoded,
)
from pretrain.randomness import keyed_generator

_MINED_PER_NEGATIVE = 4
"""More negatives are mined than used, so that draws differ."""


def with_hard_negatives(matches: Sequence[Match], wanted: int) -> list[Match]:
    """Return the matches, with up to `4 * wanted` mined hard negatives for those that name none.

    Negatives are the candidates of other matches that BM25 ranks highest, if their group and text differ from the
    match's own.
    """
    if all(match.hard_negatives for match in matches):
        return list(matches)
    texts = list(dict.fromkeys(match.found for match in matches))
    groups_of: dict[str, set[str]] = {}
    for match in matches:
        groups_of.setdefault(match.found, set()).add(match.group)
    index, mined = Bm25(texts), []
    numbered = iter(matches)
    for score_QC in index.scores([match.query for match in matches]):
        for score_C in score_QC:
            match = next(numbered)
            if match.hard_negatives:
                mined.append(match)
                continue
            best = np.argsort(-score_C, kind="stable")
            negatives: list[str] = []
            for number in best:
                if match.group not in groups_of[texts[number]] and texts[number] != match.found:
                    negatives.append(texts[number])
                if len(negatives) == _MINED_PER_NEGATIVE * wanted:
                    break
            mined.append(replace(match, hard_negatives=tuple(negatives)))
    return mined


_NO_GROUP = -1


class BiEncoderConfig(EncoderConfig, SystemConfigBase):
    """The settings of the encoder, the limits of texts, and the contrastive loss."""

    modality: ClassVar[ModalityName] = "rank"
    learns: ClassVar[bool] = True

    kind: Literal["bi_encoder"] = "bi_encoder"
    query_tokens: PositiveInt = 128
    """A query is truncated to this many tokens."""
    candidate_tokens: PositiveInt = 256
    """A candidate is truncated to this many tokens."""
    temperature: PositiveFloat = 0.05
    """Temperature of the softmax over cosine similarities."""
    hard_negatives: NonNegativeInt = 0
    """Per match: from those the task names, else from the training candidates that BM25 wrongly ranks highest."""

    def needed_positions(self) -> dict[str, int]:
        """See `SystemConfigBase`."""
        if self.start != "pretrained":
            return {}
        return {"query_tokens": self.query_tokens, "candidate_tokens": self.candidate_tokens}

    def build(self, base: Base, data: RankingData, seed: int) -> "BiEncoder":
        """Build the bi-encoder; without training matches its learner is None, and it ranks with its initial weights.

        Raises UserError if the encoder's positions do not reach the configured lengths, or if only the head is trained
        and the pooling has no parameters.
        """
        check_length(self, base, self.query_tokens, "query_tokens")
        check_length(self, base, self.candidate_tokens, "candidate_tokens")
        encoder = TextEncoder.build(self, base, seed)
        module = Contrast(encoder, self.temperature)
        truncator = Truncator(base.tokenizer, base.device)
        if not data.train:
            return BiEncoder(self, module.eval(), truncator, None)
        if not any(parameter.requires_grad for parameter in encoder.parameters()):
            raise UserError(
                f"adaptation=head trains nothing with {self.pooling.kind} pooling, which has no parameters: "
                "choose pooling kind attention, mlp or conba, or adaptation full"
            )
        return BiEncoder(
            self, module, truncator, ContrastiveLearner(self, module, truncator, data.train, seed)
        )


@dataclass(frozen=True)
class ContrastiveBatch:
    """Queries and candidates; the first B candidates belong to the queries, in order.

    `is_masked_BC` masks candidates that are neither a query's own nor its negatives: those of its group, and those with
    the same text as its own.
    """

    queries: EncoderInput
    candidates: EncoderInput
    is_masked_BC: Tensor


class Contrast(nn.Module):
    """The encoder with the contrastive loss."""

    def __init__(self, encoder: TextEncoder, temperature: float) -> None:
        super().__init__()
        self.encoder, self.temperature = encoder, temperature

    def forward(self, batch: ContrastiveBatch) -> Tensor:
        """Return the mean cross-entropy in nats of finding each query's candidate and each candidate's query."""
        query_BE = functional.normalize(self.encoder(batch.queries), dim=-1)
        candidate_CE = functional.normalize(self.encoder(batch.candidates), dim=-1)
        with torch.autocast(query_BE.device.type, enabled=False):
            score_BC = query_BE.float() @ candidate_CE.float().T / self.temperature
            score_BC = score_BC.masked_fill(batch.is_masked_BC, float("-inf"))
            own_B = torch.arange(len(score_BC), device=score_BC.device)
            forth = functional.cross_entropy(score_BC, own_B)
            back = functional.cross_entropy(score_BC[:, : len(own_B)].T, own_B)
        return (forth + back) / 2


class ContrastiveLearner:
    """A `Learner` over matches."""

    def __init__(
        self,
        config: BiEncoderConfig,
        module: Contrast,
        truncator: Truncator,
        matches: Sequence[Match],
        seed: int,
    ) -> None:
        self.module, self._truncator, self._config, self._seed = module, truncator, config, seed
        self._matches = (
            with_hard_negatives(matches, config.hard_negatives) if config.hard_negatives else matches
        )
        self._query_rows = truncator.tokens(
            [one.query for one in matches], config.query_tokens, "train_queries"
        )
        self._found_rows = truncator.tokens(
            [one.found for one in matches], config.candidate_tokens, "train_candidates"
        )
        self.lengths_tokens = [
            len(query) + len(found) * (1 + config.hard_negatives)
            for query, found in zip(self._query_rows, self._found_rows, strict=True)
        ]

    def batch(self, indices: Sequence[int], draw: int) -> ContrastiveBatch:
        """Return the batch of these matches, with hard negatives sampled by `draw`."""
        matches = [self._matches[index] for index in indices]
        generator = keyed_generator(self._seed, "hard-negatives", draw)
        negatives = [
            match.hard_negatives[number]
            for match in matches
            for number in generator.permutation(len(match.hard_negatives))[: self._config.hard_negatives]
        ]
        negative_rows = self._truncator.tokens(negatives, self._config.candidate_tokens, None)
        candidates = [self._found_rows[index] for index in indices] + negative_rows
        return ContrastiveBatch(
            self._truncator.pad([self._query_rows[index] for index in indices]),
            self._truncator.pad(candidates),
            self._truncator.on_device(masked_candidates(matches, negatives)),
        )

    def depth(self, name: str) -> int:
        """Return the number of layers between a parameter and the head."""
        return self.module.encoder.depth(name.removeprefix("encoder."))


def masked_candidates(matches: Sequence[Match], negatives: Sequence[str]) -> NDArray[np.bool_]:
    """Return whether a candidate, not the query's own, must not count as a negative of the query, [B, C]."""
    group_ids: dict[str, int] = {}
    group_B = np.array([group_ids.setdefault(one.group, len(group_ids)) for one in matches])
    group_C = np.append(group_B, np.full(len(negatives), _NO_GROUP))
    text_ids: dict[str, int] = {}
    texts = [*(one.found for one in matches), *negatives]
    text_C = np.array([text_ids.setdefault(text, len(text_ids)) for text in texts])
    masked_BC = (group_B[:, None] == group_C) | (text_C[: len(matches), None] == text_C)
    np.fill_diagonal(masked_BC, False)
    return np.asarray(masked_BC, dtype=np.bool_)


class BiEncoder:
    """A `Ranker` by inner products of unit vectors; `module` has its weights, trained or not."""

    def __init__(
        self,
        config: BiEncoderConfig,
        module: Contrast,
        truncator: Truncator,
        learner: ContrastiveLearner | None,
    ) -> None:
        self._config, self.module, self._truncator, self.learner = config, module, truncator, learner

    @property
    def cut(self) -> dict[str, int]:
        """The number of truncated texts, by kind of text."""
        return self._truncator.cut

    def vectors(
        self, texts: Sequence[str], max_tokens: int, what: str, on_progress: OnProgress
    ) -> NDArray[np.float64]:
        """Return the unit vectors [number of texts, E]; zeros for a text without tokens."""
        rows = self._truncator.tokens(texts, max_tokens, what)
        vector_QE = encoded(self.module.encoder, self._truncator, rows, on_progress)
        length_Q1 = np.linalg.norm(vector_QE, axis=1, keepdims=True)
        return vector_QE / np.where(length_Q1 > 0, length_Q1, 1.0)

    def scores(
        self, queries: Sequence[str], candidates: Sequence[str], on_progress: OnProgress
    ) -> NDArray[np.float64]:
        """Return cosine similarities [Q, C]; progress counts queries, by the share of encoded texts."""
        config, num_texts = self._config, len(queries) + len(candidates)

        def report(num_done: int) -> None:
            on_progress(num_done * len(queries) // num_texts)

        query_QE = self.vectors(queries, config.query_tokens, "queries", report)
        candidate_CE = self.vectors(
            candidates,
            config.candidate_tokens,
            "candidates",
            lambda num_done: report(len(queries) + num_done),
        )
        return np.asarray(query_QE @ candidate_CE.T, dtype=np.float64)


class ZeroShotEncoderConfig(BiEncoderConfig):
    """The settings of a bi-encoder that is not trained; the settings of training have no effect."""

    modality: ClassVar[ModalityName] = "rank"
    learns: ClassVar[bool] = False

    kind: Literal["zero_shot_encoder"] = "zero_shot_encoder"  # type: ignore[assignment]

    def build(self, base: Base, data: RankingData, seed: int) -> "BiEncoder":
        """Build a bi-encoder without a learner.

        Raises UserError if the encoder's positions do not reach the configured lengths.
        """
        check_length(self, base, self.query_tokens, "query_tokens")
        check_length(self, base, self.candidate_tokens, "candidate_tokens")
        module = Contrast(TextEncoder.build(self, base, seed), self.temperature).eval()
        return BiEncoder(self, module, Truncator(base.tokenizer, base.device), None)
