"""The blocks that training mixes, of one corpus or of several.

Shapes: N blocks.
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from cluster.storage import fingerprint
from data_prep.finished.prepared import BlockEntry, PreparedCorpus, open_prepared
from pretrain.data.config import DataConfig


@dataclass(frozen=True)
class WeightedCorpus:
    """A corpus, and how many times an epoch reads it, multiplied by the weights of its sources."""

    corpus: PreparedCorpus
    weight: float = 1.0


def open_corpora(own: PreparedCorpus, config: DataConfig) -> list[WeightedCorpus]:
    """Open the run's own corpus, if its weight is above 0, and the others.

    Raises UserError when one cannot be opened or was made with another tokenizer, or when there is none.
    """
    corpora = [WeightedCorpus(own, config.own_weight)] if config.own_weight > 0 else []
    for other in config.corpora:
        corpus = open_prepared(other.location)
        if corpus.manifest.tokenizer_sha256 != own.manifest.tokenizer_sha256:
            raise UserError(
                f"corpus {corpus.location} was made with another tokenizer than {own.location}: "
                "prepare both with the same one"
            )
        corpora.append(WeightedCorpus(corpus, other.weight))
    if not corpora:
        raise UserError(
            "pretrain.data.own_weight is 0 and pretrain.data.corpora is empty: name a corpus to train on"
        )
    return corpora


def corpora_fingerprint(corpora: Sequence[WeightedCorpus]) -> str:
    """Return a fingerprint of text and mixture; for a single corpus of weight 1 it is the manifest's SHA-256."""
    if len(corpora) == 1 and corpora[0].weight == 1.0:
        return corpora[0].corpus.manifest_sha256
    return fingerprint([[part.corpus.manifest_sha256, part.weight] for part in corpora])


class MixedBlocks:
    """The blocks of a split of all corpora, one corpus after the other, numbered from 0 on."""

    def __init__(self, corpora: Sequence[WeightedCorpus], split: str) -> None:
        self._parts = [(part.corpus, part.corpus.blocks(split)) for part in corpora]
        self._firsts = list(accumulate((len(entries) for _, entries in self._parts), initial=0))
        entries = [(number, entry) for number, (_, own) in enumerate(self._parts) for entry in own]
        self.max_documents = max((entry.num_docs for _, entry in entries), default=0)
        """The most documents that a block has."""
        self.sizes_N: NDArray[np.int64] = np.array([entry.num_tokens for _, entry in entries], np.int64)
        """Tokens of each block."""
        sources = [(number, entry.source) for number, entry in entries]
        numbers = {source: number for number, source in enumerate(dict.fromkeys(sources))}
        self.sources_N: NDArray[np.int64] = np.array([numbers[source] for source in sources], np.int64)
        """The number of each block's source; a source is one of one corpus."""
        weights = [_weight(corpora[number], source) for number, source in numbers]
        self.weights_N: NDArray[np.float64] = np.array(weights, np.float64)[self.sources_N]
        """How many times an epoch reads each block."""
        self.num_readers = max(part.corpus.num_readers for part in corpora)
        """How many threads are worth using to open blocks."""

    def __len__(self) -> int:
        return self._firsts[-1]

    def find(self, number: int) -> tuple[int, PreparedCorpus, BlockEntry]:
        """Return the number of the block's corpus, the corpus, and the block."""
        part = bisect.bisect_right(self._firsts, number) - 1
        corpus, entries = self._parts[part]
        return part, corpus, entries[number - self._firsts[part]]


def _weight(part: WeightedCorpus, source: str) -> float:
    known = part.corpus.manifest.sources.get(source)
    return part.weight if known is None else part.weight * known.weight
