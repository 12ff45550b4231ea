"""Token-level completion: the next code token, given those before it in the file.

The rule follows CodeXGLUE's CodeCompletion-token: every lexeme of the Python lexer is one prediction, line
ends and indentation are not scored. Two differences: comments stay in the text (they are context, never
scored), and literals keep their own text instead of becoming a placeholder, which makes them harder; the
accuracy by class tells them apart. A lexeme is right when every tokenizer piece that overlaps its bytes is
the model's first choice given the true text before the piece, which is when greedy decoding would write it.
Its rank, of which MRR is the mean reciprocal, is the worst of its pieces' ranks: how many choices look as good
to the model. A piece may hold the white space before a lexeme, or two lexemes at once; it then counts for
each. Of a long file one part is read; the first lexeme of a part has nothing before it and is not scored.

Shapes: B lanes, L segment, T lane, V vocabulary.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from cluster.errors import UserError
from cluster.journal import Journal
from data_prep.prepared import PreparedCorpus
from finetune.config import CompletionConfig
from finetune.held_out import TEST_SPLIT, TRAIN_SPLIT, HeldOutDocument, held_out_documents
from finetune.lexical import BigramPredictor
from finetune.lexing import Lexeme, LexemeClass, python_lexemes
from finetune.metrics.intervals import ratio_estimate
from finetune.packing import PackedLanes, pack_documents
from finetune.train import StepLoss, mixed_precision, train
from pretrain.model.memory import SegmentMemory
from pretrain.model.places import UNFILLED_GROUP
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.objective import left_to_right
from pretrain.randomness import key_seed, keyed_generator

_IGNORED = -100
_MIN_SCORED_LEXEMES = 100


@dataclass(frozen=True)
class ScoredDocument:
    """The part `tokens` of a test document; `lexemes[1:]` are scored. Lexeme i is made of the tokens
    [first, end) that `pieces[i]` names.
    """

    tokens: npt.NDArray[np.integer]
    lexemes: list[Lexeme]
    pieces: list[tuple[int, int]]


def scored_documents(corpus: PreparedCorpus, config: CompletionConfig, seed: int) -> list[ScoredDocument]:
    """The test documents, about `max_eval_tokens` in all; the same for every arm and baseline.

    Raises UserError when they have fewer than 100 scored lexemes.
    """
    documents: list[ScoredDocument] = []
    for number, document in enumerate(held_out_documents(corpus, TEST_SPLIT, seed)):
        start = window_start(document, config.max_document_tokens, seed, number)
        scored = align(document, corpus.tokenizer.token_bytes, start, config.max_document_tokens)
        if len(scored.lexemes) > 1:
            documents.append(scored)
        if sum(len(one.tokens) for one in documents) >= config.max_eval_tokens:
            break
    num_lexemes = sum(len(one.lexemes) - 1 for one in documents)
    if num_lexemes < _MIN_SCORED_LEXEMES:
        raise UserError(
            f"{corpus.folder}: the test split has only {num_lexemes} code tokens to score completion on: "
            "use a larger corpus or a larger test share"
        )
    return documents


def window_start(document: HeldOutDocument, max_tokens: int, seed: int, number: int) -> int:
    """Where the part of a long document that is read begins: anywhere, as files begin with little code."""
    latest = max(0, len(document.tokens) - max_tokens)
    return int(keyed_generator(seed, "completion-window", number).integers(0, latest + 1))


def align(
    document: HeldOutDocument, token_bytes_V: npt.NDArray[np.int64], start: int, max_tokens: int
) -> ScoredDocument:
    """The part of a document from token `start` on, with the lexemes whole in it and their pieces."""
    tokens = document.tokens[start : start + max_tokens]
    first_byte = int(token_bytes_V[document.tokens[:start]].sum())
    end_bytes = first_byte + np.cumsum(token_bytes_V[tokens])
    last_byte = int(end_bytes[-1]) if len(tokens) else first_byte
    lexemes = [
        one
        for one in python_lexemes(document.text)
        if first_byte <= one.start_byte and one.end_byte <= last_byte
    ]
    first = np.searchsorted(end_bytes, [one.start_byte for one in lexemes], side="right")
    last = np.searchsorted(end_bytes, [one.end_byte for one in lexemes], side="left")
    return ScoredDocument(tokens, lexemes, list(zip(first.tolist(), (last + 1).tolist(), strict=True)))


def train_completion(
    model: TwoStreamTransformer, corpus: PreparedCorpus, config: CompletionConfig, seed: int, journal: Journal
) -> None:
    """Left-to-right language modelling of the task-train documents, segment after segment with memory."""
    lanes = pack_documents(_train_tokens(corpus, config, seed), config.num_lanes)
    train(model, config.training, seed, LaneLoss(model, lanes, config.segment_tokens), journal)


def _train_tokens(
    corpus: PreparedCorpus, config: CompletionConfig, seed: int
) -> list[npt.NDArray[np.integer]]:
    """As many cut documents as the steps need; fewer where the split ends, which is then read again."""
    wanted = config.training.steps * config.num_lanes * config.segment_tokens
    documents: list[npt.NDArray[np.integer]] = []
    num_tokens = 0
    for number, document in enumerate(held_out_documents(corpus, TRAIN_SPLIT, seed)):
        start = window_start(document, config.max_document_tokens, seed, number)
        documents.append(document.tokens[start : start + config.max_document_tokens])
        num_tokens += len(documents[-1])
        if num_tokens >= wanted + config.num_lanes * config.max_document_tokens:
            break
    return documents


class LaneLoss:
    """The loss of successive segments; steps come in order, for the memory goes from each to the next."""

    def __init__(self, model: TwoStreamTransformer, lanes: PackedLanes, segment_tokens: int) -> None:
        self._model = model
        self._lanes = lanes
        self._segment_tokens = segment_tokens
        self._memory: SegmentMemory | None = None

    def __call__(self, step: int) -> StepLoss:
        """Mean negative log-likelihood (nats) of the segment's tokens, padding left out."""
        number = step % self._lanes.num_segments(self._segment_tokens)
        if number == 0:
            # The documents begin again: what follows them must not be remembered as their past.
            self._memory = None
        tokens_BL, group_BL = self._lanes.segment(number, self._segment_tokens)
        logits_BLV, self._memory = next_token_logits(self._model, tokens_BL, group_BL, self._memory)
        wanted_BL = tokens_BL.masked_fill(group_BL == UNFILLED_GROUP, _IGNORED).to(logits_BLV.device)
        loss = functional.cross_entropy(
            logits_BLV.float().flatten(0, 1), wanted_BL.flatten(), ignore_index=_IGNORED
        )
        return StepLoss(loss, tokens_BL.numel())


def next_token_logits(
    model: TwoStreamTransformer, tokens_BL: Tensor, group_BL: Tensor, memory: SegmentMemory | None
) -> tuple[Tensor, SegmentMemory]:
    """Every token's scores [B, L, V] from the tokens before it."""
    device = next(model.parameters()).device
    content = left_to_right(group_BL.to(device))
    output = model(tokens_BL.to(device), content, content, memory)
    return output.logits_BPV, output.memory


def token_ranks(
    model: TwoStreamTransformer, lanes: PackedLanes, segment_tokens: int
) -> npt.NDArray[np.int64]:
    """The rank of each token among the model's choices given the true tokens before it, [B, T]."""
    device = next(model.parameters()).device
    memory: SegmentMemory | None = None
    ranks: list[Tensor] = []
    model.eval()
    with torch.inference_mode(), mixed_precision(device):
        for number in range(lanes.num_segments(segment_tokens)):
            tokens_BL, group_BL = lanes.segment(number, segment_tokens)
            logits_BLV, memory = next_token_logits(model, tokens_BL, group_BL, memory)
            ranks.append(ranks_among(logits_BLV, tokens_BL.to(device)).cpu())
    return torch.cat(ranks, dim=1).numpy()


def ranks_among(logits_XV: Tensor, token_X: Tensor) -> Tensor:
    """[X], for X of any shape: 1 for the first choice; of any other token how many score as high or higher."""
    wanted_X1 = logits_XV.gather(-1, token_X[..., None])
    num_as_good_X = (logits_XV >= wanted_X1).sum(dim=-1)
    return num_as_good_X.masked_fill(logits_XV.argmax(dim=-1) == token_X, 1)


def evaluate_completion(
    model: TwoStreamTransformer, documents: list[ScoredDocument], config: CompletionConfig, seed: int
) -> dict[str, Any]:
    """Accuracy and MRR over the scored lexemes with 95% intervals (documents resampled), and accuracy by class."""
    lanes = pack_documents([document.tokens for document in documents], config.num_lanes)
    rank_BT = token_ranks(model, lanes, config.segment_tokens)
    rank_D: list[list[float]] = []
    for document, place in zip(documents, lanes.places, strict=True):
        rank_T = rank_BT[place.lane, place.start : place.start + place.num_tokens]
        rank_D.append([float(rank_T[first:end].max(initial=1)) for first, end in document.pieces[1:]])
    return completion_summary(documents, rank_D, seed)


def completion_summary(
    documents: list[ScoredDocument], rank_D: list[list[float]], seed: int
) -> dict[str, Any]:
    """The figures of one predictor: `rank_D[d][i]` is the rank of document d's lexeme i + 1 among its choices."""
    num_tried_D = [len(ranks) for ranks in rank_D]
    bootstrap_seed = key_seed(seed, "completion-bootstrap")
    accuracy = ratio_estimate(
        [sum(rank == 1 for rank in ranks) for ranks in rank_D], num_tried_D, bootstrap_seed
    )
    mrr = ratio_estimate([sum(1 / rank for rank in ranks) for ranks in rank_D], num_tried_D, bootstrap_seed)
    tried: Counter[LexemeClass] = Counter()
    hit: Counter[LexemeClass] = Counter()
    for document, ranks in zip(documents, rank_D, strict=True):
        for lexeme, rank in zip(document.lexemes[1:], ranks, strict=True):
            tried[lexeme.kind] += 1
            hit[lexeme.kind] += rank == 1
    return {
        "accuracy": accuracy.value,
        "accuracy_low": accuracy.low,
        "accuracy_high": accuracy.high,
        "mrr": mrr.value,
        "mrr_low": mrr.low,
        "mrr_high": mrr.high,
        "num_lexemes": tried.total(),
        "num_documents": len(documents),
        "by_class": {str(kind): hit[kind] / tried[kind] for kind in LexemeClass if tried[kind]},
    }


def bigram_baseline(corpus: PreparedCorpus, config: CompletionConfig, seed: int) -> dict[str, Any]:
    """The same figures for `BigramPredictor`, counted on task-train documents up to `max_baseline_bytes`.

    It may see more of the task-train split than the steps of the arms reach, so it is no weak opponent.
    """
    documents = scored_documents(corpus, config, seed)
    predictor = BigramPredictor(_train_lexemes(corpus, config.max_baseline_bytes, seed))
    rank_D = [list(_ranks(predictor, document.lexemes)) for document in documents]
    return completion_summary(documents, rank_D, seed)


def _train_lexemes(corpus: PreparedCorpus, max_bytes: int, seed: int) -> Iterator[list[str]]:
    num_bytes = 0
    for document in held_out_documents(corpus, TRAIN_SPLIT, seed):
        num_bytes += len(document.text.encode())
        yield [lexeme.text for lexeme in python_lexemes(document.text)]
        if num_bytes >= max_bytes:
            return


def _ranks(predictor: BigramPredictor, lexemes: Iterable[Lexeme]) -> Iterator[float]:
    texts = [lexeme.text for lexeme in lexemes]
    for previous, following in zip(texts, texts[1:], strict=False):
        yield predictor.rank(previous, following)
