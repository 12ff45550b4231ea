"""Code search: a docstring finds its function among `num_candidates` functions of packages never trained on.

The docstring is cut out of the function; its first paragraph is the query. The signature stays, and
docstrings echo names: much can be found by words alone. So the figure means something only beside TF-IDF over
sub-tokens, which sees the same texts. Pairs whose query or code equals another's are left
out, also across the splits; ties count against the model.

Shapes: B pairs, L tokens, D model, Q queries, C candidates.
"""

from collections.abc import Sequence
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
from data_prep.tokenizer import CodeTokenizer
from finetune.config import SearchConfig
from finetune.functions import SearchPair, distinct_pairs, documented_functions
from finetune.held_out import TEST_SPLIT, TRAIN_SPLIT, held_out_documents
from finetune.lexical import TfidfSearch
from finetune.metrics.intervals import ratio_estimate
from finetune.metrics.ranking import reciprocal_ranks
from finetune.train import StepLoss, mixed_precision, train
from pretrain.inference.embedding import summed_states
from pretrain.model.places import UNFILLED_GROUP, Places
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.randomness import key_seed, keyed_generator

_MIN_CANDIDATES = 20
_ENCODED_AT_ONCE = 32


@dataclass(frozen=True)
class SearchData:
    """Pairs to train on, and disjoint groups of test pairs: each query searches the codes of its group."""

    train_pairs: list[SearchPair]
    groups: list[list[SearchPair]]


def search_data(corpus: PreparedCorpus, config: SearchConfig, seed: int) -> SearchData:
    """The same for every arm and baseline: a pure function of corpus, config and seed.

    With fewer than `num_candidates` test functions there is one smaller group. Raises UserError below 20
    test functions, or with fewer training pairs than one batch.
    """
    train_pairs = _pairs(corpus, TRAIN_SPLIT, config, seed, config.max_train_pairs, [])
    wanted = config.num_candidates * config.max_groups
    test_pairs = _pairs(corpus, TEST_SPLIT, config, seed, wanted, train_pairs)
    for split, pairs, needed in (
        (TRAIN_SPLIT, train_pairs, config.batch_pairs),
        (TEST_SPLIT, test_pairs, _MIN_CANDIDATES),
    ):
        if len(pairs) < needed:
            raise UserError(
                f"{corpus.folder}: the {split} split has only {len(pairs)} documented functions, "
                f"code search needs {needed}: use a larger corpus or give that split a larger share"
            )
    size = min(config.num_candidates, len(test_pairs))
    starts = range(0, len(test_pairs) - size + 1, size)
    return SearchData(train_pairs, [test_pairs[start : start + size] for start in starts])


def _pairs(
    corpus: PreparedCorpus,
    split: str,
    config: SearchConfig,
    seed: int,
    wanted: int,
    seen: Sequence[SearchPair],
) -> list[SearchPair]:
    """The first `wanted` usable pairs in a random order of all; documents are read only as far as needed."""
    found: list[SearchPair] = []
    for document in held_out_documents(corpus, split, seed):
        found += documented_functions(document.text)
        # Half as many again, for those that `distinct_pairs` leaves out.
        if len(found) >= 1.5 * wanted and len(_usable(found, config, seen)) >= wanted:
            break
    usable = _usable(found, config, seen)[:wanted]
    return [usable[index] for index in keyed_generator(seed, f"search-{split}").permutation(len(usable))]


def _usable(pairs: list[SearchPair], config: SearchConfig, seen: Sequence[SearchPair]) -> list[SearchPair]:
    return distinct_pairs(
        pairs, min_query_words=config.min_query_words, min_code_lines=config.min_code_lines, seen=seen
    )


class BiEncoder:
    """Unit vectors of texts, as `pretrain.inference.embedding` makes them; queries and codes share the weights."""

    def __init__(self, model: TwoStreamTransformer, tokenizer: CodeTokenizer) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self.device = next(model.parameters()).device

    def __call__(self, texts: Sequence[str], max_tokens: int) -> tuple[Tensor, int]:
        """Vectors [B, layers * D] in float32 of the texts' first `max_tokens` tokens, and how many tokens went in."""
        rows = [self._tokenizer.encode(text)[:max_tokens] for text in texts]
        tokens_BL = torch.zeros(len(rows), max(1, *map(len, rows)), dtype=torch.int64)
        group_BL = torch.full_like(tokens_BL, UNFILLED_GROUP)
        for row, tokens in enumerate(rows):
            tokens_BL[row, : len(tokens)] = torch.from_numpy(tokens.astype(np.int64))
            group_BL[row, : len(tokens)] = 0
        group_BL = group_BL.to(self.device)
        inputs_BLD = self._model.read(tokens_BL.to(self.device), Places.given(group_BL))
        num_tokens_B1 = (group_BL == 0).sum(dim=1, keepdim=True).clamp(min=1)
        means_BE = summed_states(inputs_BLD, group_BL) / num_tokens_B1
        return functional.normalize(means_BE, dim=-1), tokens_BL.numel()


class ContrastiveLoss:
    """InfoNCE in both directions over the batch; an epoch is a shuffle of all pairs, keyed by its number."""

    def __init__(self, encoder: BiEncoder, pairs: list[SearchPair], config: SearchConfig, seed: int) -> None:
        self._encoder = encoder
        self._pairs = pairs
        self._config = config
        self._seed = seed

    def batch(self, step: int) -> list[SearchPair]:
        """The pairs of one step; the incomplete last batch of an epoch is left out."""
        epoch, number = divmod(step, len(self._pairs) // self._config.batch_pairs)
        order = keyed_generator(self._seed, "search-epoch", epoch).permutation(len(self._pairs))
        first = number * self._config.batch_pairs
        return [self._pairs[index] for index in order[first : first + self._config.batch_pairs]]

    def __call__(self, step: int) -> StepLoss:
        """Mean cross entropy of each query's own code among the batch's codes, and the reverse."""
        pairs = self.batch(step)
        query_BD, num_query_tokens = self._encoder([one.query for one in pairs], self._config.query_tokens)
        code_BD, num_code_tokens = self._encoder([one.code for one in pairs], self._config.code_tokens)
        with torch.autocast(query_BD.device.type, enabled=False):
            score_BB = query_BD @ code_BD.T / self._config.temperature
            own_B = torch.arange(len(pairs), device=score_BB.device)
            loss = (
                functional.cross_entropy(score_BB, own_B) + functional.cross_entropy(score_BB.T, own_B)
            ) / 2
        return StepLoss(loss, num_query_tokens + num_code_tokens)


def train_search(
    model: TwoStreamTransformer,
    corpus: PreparedCorpus,
    data: SearchData,
    config: SearchConfig,
    seed: int,
    journal: Journal,
) -> None:
    """Train the bi-encoder on the task-train pairs."""
    encoder = BiEncoder(model, corpus.tokenizer)
    train(model, config.training, seed, ContrastiveLoss(encoder, data.train_pairs, config, seed), journal)


def evaluate_search(
    model: TwoStreamTransformer, corpus: PreparedCorpus, data: SearchData, config: SearchConfig, seed: int
) -> dict[str, Any]:
    """MRR over the queries of all groups, with its 95% interval (queries resampled)."""
    model.eval()
    encoder = BiEncoder(model, corpus.tokenizer)
    scores = []
    for group in data.groups:
        query_QD = _vectors(encoder, [one.query for one in group], config.query_tokens)
        code_CD = _vectors(encoder, [one.code for one in group], config.code_tokens)
        scores.append(query_QD @ code_CD.T)
    return search_summary(scores, seed)


def _vectors(encoder: BiEncoder, texts: Sequence[str], max_tokens: int) -> npt.NDArray[np.float64]:
    """Vectors of many texts in order; texts of like length are encoded together to save padding."""
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    vectors: dict[int, npt.NDArray[np.float64]] = {}
    with torch.inference_mode(), mixed_precision(encoder.device):
        for first in range(0, len(order), _ENCODED_AT_ONCE):
            part = order[first : first + _ENCODED_AT_ONCE]
            vector_BD, _ = encoder([texts[index] for index in part], max_tokens)
            vectors.update(zip(part, vector_BD.double().cpu().numpy(), strict=True))
    return np.stack([vectors[index] for index in range(len(texts))])


def search_summary(scores: Sequence[npt.NDArray[np.float64]], seed: int) -> dict[str, Any]:
    """The figures of one scorer: square score matrices, query i of a group belongs to its candidate i."""
    ranks = np.concatenate([reciprocal_ranks(score_QC, np.arange(len(score_QC))) for score_QC in scores])
    estimate = ratio_estimate(ranks, np.ones(len(ranks)), key_seed(seed, "search-bootstrap"))
    return {
        "mrr": estimate.value,
        "mrr_low": estimate.low,
        "mrr_high": estimate.high,
        "num_queries": len(ranks),
        "num_candidates": len(scores[0]),
    }


def tfidf_baseline(corpus: PreparedCorpus, config: SearchConfig, seed: int) -> dict[str, Any]:
    """The same figures for TF-IDF over sub-tokens, document frequencies from task-train pairs and the group.

    It reads whole functions, not their first tokens.
    """
    data = search_data(corpus, config, seed)
    known = [text for pair in data.train_pairs for text in (pair.query, pair.code)]
    scores = []
    for group in data.groups:
        codes = [one.code for one in group]
        scores.append(TfidfSearch([*known, *codes]).scores([one.query for one in group], codes))
    return search_summary(scores, seed)
