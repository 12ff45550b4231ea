"""Words of identifiers and TF-IDF similarity, for the lexical baselines."""

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def sub_tokens(text: str) -> list[str]:
    """Split words into lower-case sub-tokens: `readHTTPHeader_v2` -> read, http, header, v, 2."""
    parts = (
        part for word in _WORD.findall(text) for part in (_HUMP.findall(word) if word.isascii() else [word])
    )
    return [part.lower() for part in parts]


class TfidfSearch:
    """Cosine similarity of TF-IDF vectors over sub-tokens; document frequencies are fitted on `texts`."""

    def __init__(self, texts: Sequence[str]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self._vectorizer = TfidfVectorizer(analyzer=sub_tokens, sublinear_tf=True)
        self._vectorizer.fit(texts)

    def scores(self, queries: Sequence[str], candidates: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the similarities, [num_queries, num_candidates]."""
        query_QV = self._vectorizer.transform(queries)
        candidate_CV = self._vectorizer.transform(candidates)
        return np.asarray((query_QV @ candidate_CV.T).toarray(), dtype=np.float64)
