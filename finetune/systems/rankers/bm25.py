"""BM25 over sub-tokens.

Shapes: Q queries, C candidates, V sub-tokens.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from finetune.lexical import sub_tokens

_QUERIES_AT_ONCE = 500


class Bm25:
    """BM25 (Robertson and Zaragoza 2009, equation 3.15) with Lucene's idf, log(1 + (C - df + 0.5) / (df + 0.5)).

    Document frequencies are those of the candidates. A word counts once in a query.
    """

    def __init__(self, candidates: Sequence[str], k1: float = 1.2, b: float = 0.75) -> None:
        from sklearn.feature_extraction.text import CountVectorizer

        self._vectorizer = CountVectorizer(analyzer=sub_tokens)
        self._num_candidates = len(candidates)
        try:
            weight_CV = self._vectorizer.fit_transform(candidates).astype(np.float64)
        except ValueError:  # no candidate has a word
            self._weight_VC = None
            return
        length_C = np.asarray(weight_CV.sum(axis=1)).ravel()
        frequency_V = np.bincount(weight_CV.indices, minlength=weight_CV.shape[1])
        idf_V = np.log1p((len(candidates) - frequency_V + 0.5) / (frequency_V + 0.5))
        row = np.repeat(np.arange(len(candidates)), np.diff(weight_CV.indptr))
        count = weight_CV.data
        saturation = k1 * (1 - b + b * length_C[row] / length_C.mean())
        weight_CV.data = idf_V[weight_CV.indices] * count * (k1 + 1) / (count + saturation)
        self._weight_VC = weight_CV.T.tocsr()

    def scores(self, queries: Sequence[str]) -> Iterator[NDArray[np.float64]]:
        """Yield the scores [some queries, C] in the order of the queries, a few hundred at a time to limit memory."""
        for first in range(0, len(queries), _QUERIES_AT_ONCE):
            part = queries[first : first + _QUERIES_AT_ONCE]
            if self._weight_VC is None:
                yield np.zeros((len(part), self._num_candidates))
                continue
            query_QV = self._vectorizer.transform(part)
            query_QV.data[:] = 1
            yield np.asarray((query_QV @ self._weight_VC).toarray(), dtype=np.float64)
