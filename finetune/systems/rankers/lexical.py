"""Ranking by counting words: the baseline of every model that ranks."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from finetune.lexical import TfidfSearch
from finetune.modalities.base import ModalityName, OnProgress
from finetune.modalities.ranking import RankingData
from finetune.systems.base import Base, SystemConfigBase
from finetune.systems.rankers.bm25 import Bm25


class LexicalRankerConfig(SystemConfigBase):
    """The settings of a ranker by words. Words are parts of identifiers, in lower case; texts are not truncated."""

    modality: ClassVar[ModalityName] = "rank"
    learns: ClassVar[bool] = False

    kind: Literal["lexical_ranker"] = "lexical_ranker"
    method: Literal["bm25", "tfidf"] = "bm25"

    def build(self, base: Base | None, data: RankingData, seed: int) -> "LexicalRanker":
        """Build the ranker; `base` and `seed` have no effect."""
        known = [text for match in data.train for text in (match.query, match.found)]
        return LexicalRanker(self, known)


class LexicalRanker:
    """A `Ranker` that is not trained.

    TF-IDF's document frequencies are those of training texts and candidates, BM25's those of the candidates only.
    """

    learner = None

    def __init__(self, config: LexicalRankerConfig, known: Sequence[str]) -> None:
        self._config, self._known = config, known

    def scores(
        self, queries: Sequence[str], candidates: Sequence[str], on_progress: OnProgress
    ) -> NDArray[np.float64]:
        """Return BM25 scores, or cosine similarities of TF-IDF vectors."""
        if self._config.method == "tfidf":
            found = TfidfSearch([*self._known, *candidates]).scores(queries, candidates)
        else:
            index = Bm25(candidates)
            found = np.concatenate(list(index.scores(queries)))
        on_progress(len(queries))
        return found
