"""Scoring: the nats of every document of some lanes under one condition.

Shapes: B lanes, L segment, P predicted, T tokens of a lane, D documents, V vocabulary, X = B P.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from pretrain.data.batch import Batch, left_to_right_batch
from pretrain.evaluation.conditions import Condition, ValidationOrders
from pretrain.evaluation.result import document_sums
from pretrain.evaluation.text import DocumentFinder, LaneDocuments, ValidationText
from pretrain.model.fused.cross_entropy import cross_entropy_fusable, fused_token_nats
from pretrain.model.precision import at_least_float32
from pretrain.model.transformer import TwoStreamTransformer

MAX_FLOAT32_LOGITS = 1 << 24
"""The most logits that are copied to float32 at once: 64 MB."""


def token_nats(logits_BPV: Tensor, wanted_BP: Tensor) -> Tensor:
    """Return negative log-likelihoods [B, P] of the wanted tokens in nats, float32 at least; without gradients."""
    logits_XV, wanted_X = logits_BPV.flatten(0, 1), wanted_BP.flatten()
    if cross_entropy_fusable(logits_XV):
        return fused_token_nats(logits_XV, wanted_X).view_as(wanted_BP)
    num_rows = max(1, MAX_FLOAT32_LOGITS // logits_XV.shape[1])
    parts = [
        functional.cross_entropy(
            at_least_float32(logits_XV[first : first + num_rows]),
            wanted_X[first : first + num_rows],
            reduction="none",
        )
        for first in range(0, len(wanted_X), num_rows)
    ]
    return torch.cat(parts).view_as(wanted_BP)


@dataclass(frozen=True)
class DocumentCosts:
    """Language, nats and bytes of every document that has a scored token."""

    languages: tuple[str, ...]
    nats_D: NDArray[np.float64]
    bytes_D: NDArray[np.float64]

    def sums(self) -> NDArray[np.float64]:
        """Return every document's summands, float64 [D, NUM_SUMS]."""
        return document_sums(self.nats_D, self.bytes_D)


@dataclass(frozen=True)
class Scorer:
    """Scores a text's lanes under any condition."""

    text: ValidationText
    documents: DocumentFinder
    orders: ValidationOrders
    device: torch.device
    tick: Callable[[], None]
    """Called after every pass."""

    def costs(
        self, model: TwoStreamTransformer, condition: Condition, lanes: range, num_segments: int
    ) -> DocumentCosts:
        """Score the first `num_segments` segments of `lanes`, a segment of all of them in one pass.

        The model must be in evaluation mode and without gradients; only its forward pass is called.
        """
        costs = _RunningCosts([self.documents.lane(lane) for lane in lanes], self.text.token_bytes_V)
        is_causal = model.config.context == "causal"
        memory = model.empty_memory(len(lanes)).to(self.device)
        if not condition.with_memory:
            memory = memory.without_past()  # it stays empty when it is advanced
        for segment in range(num_segments):
            plain = left_to_right_batch(
                self.text.reader, segment, lanes, model.config.segment_encodings, self.device
            )
            batch = self.orders.batch(condition.order, plain, segment, lanes, is_causal=is_causal)
            output = model(batch.tokens_BL, batch.content, batch.targets, memory)
            memory = output.memory
            nats_BP = token_nats(output.logits_BPV, batch.wanted_BP)
            has_given_token = condition.order == "left_to_right" and segment == 0
            costs.add(segment, batch, nats_BP, num_given=int(has_given_token))
            self.tick()
        return costs.finished()


class _RunningCosts:
    def __init__(self, documents: Sequence[LaneDocuments], token_bytes_V: NDArray[np.int64]) -> None:
        self._token_bytes_V = token_bytes_V
        self._languages = tuple(language for lane in documents for language in lane.languages)
        first_document_B = np.cumsum([0, *(len(lane.languages) for lane in documents)])[:-1]
        self._document_BT = np.stack([lane.document_T for lane in documents]) + first_document_B[:, None]
        self._nats_D, self._bytes_D, self._tokens_D = np.zeros((3, len(self._languages)))

    def add(self, segment: int, batch: Batch, nats_BP: torch.Tensor, num_given: int) -> None:
        """Add the predictions of the lanes' segment number `segment`, without the first `num_given`."""
        first_token = segment * batch.tokens_BL.shape[1]
        index_BP = first_token + batch.targets.position_BX.cpu().numpy()  # no order here leaves gaps
        scored = np.s_[:, num_given:]
        document_X = np.take_along_axis(self._document_BT, index_BP, axis=1)[scored].reshape(-1)
        token_X = batch.wanted_BP.cpu().numpy()[scored].reshape(-1)
        np.add.at(self._nats_D, document_X, nats_BP.double().cpu().numpy()[scored].reshape(-1))
        np.add.at(self._bytes_D, document_X, self._token_bytes_V[token_X])
        np.add.at(self._tokens_D, document_X, 1)

    def finished(self) -> DocumentCosts:
        is_scored_D = self._tokens_D > 0
        languages = tuple(
            language for language, scored in zip(self._languages, is_scored_D, strict=True) if scored
        )
        return DocumentCosts(languages, self._nats_D[is_scored_D], self._bytes_D[is_scored_D])
