"""What counting alone achieves: the columns beside the model's."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def sub_tokens(text: str) -> list[str]:
    """Lower-cased parts of the words: `readHTTPHeader_v2` -> read, http, header, v, 2."""
    parts = (
        part for word in _WORD.findall(text) for part in (_HUMP.findall(word) if word.isascii() else [word])
    )
    return [part.lower() for part in parts]


class TfidfSearch:
    """Cosine similarity of TF-IDF vectors over sub-tokens; document frequencies from the texts given."""

    def __init__(self, texts: Sequence[str]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self._vectorizer = TfidfVectorizer(analyzer=sub_tokens, sublinear_tf=True)
        self._vectorizer.fit(texts)

    def scores(self, queries: Sequence[str], candidates: Sequence[str]) -> npt.NDArray[np.float64]:
        """Similarities, [num_queries, num_candidates]."""
        query_QV = self._vectorizer.transform(queries)
        candidate_CV = self._vectorizer.transform(candidates)
        return np.asarray((query_QV @ candidate_CV.T).toarray(), dtype=np.float64)


class BigramPredictor:
    """The lexeme that most often followed the previous one; for an unseen one, the most frequent of all.

    Among equals the one that was counted first.
    """

    def __init__(self, documents: Iterable[Sequence[str]]) -> None:
        followers: defaultdict[str, Counter[str]] = defaultdict(Counter)
        totals: Counter[str] = Counter()
        for document in documents:
            totals.update(document)
            for previous, following in zip(document, document[1:], strict=False):
                followers[previous][following] += 1
        self._totals, self._followers = totals, dict(followers)
        self._most_frequent = _most_counted(totals)
        self._best = {previous: _most_counted(counts) for previous, counts in followers.items()}
        self._ascending_counts: dict[str | None, npt.NDArray[np.int64]] = {}

    def next_lexeme(self, previous: str) -> str:
        """The guess for what follows `previous`."""
        return self._best.get(previous, self._most_frequent)

    def rank(self, previous: str, following: str) -> float:
        """Of `following` among the guesses, from 1; of equals all but the first guess count as the last. Infinite for
        what was never counted there.
        """
        counts = self._followers.get(previous, self._totals)
        if following not in counts:
            return math.inf
        if following == self.next_lexeme(previous):
            return 1
        key = previous if previous in self._followers else None
        if key not in self._ascending_counts:
            self._ascending_counts[key] = np.sort(np.fromiter(counts.values(), dtype=np.int64))
        ascending = self._ascending_counts[key]
        return len(ascending) - int(np.searchsorted(ascending, counts[following], side="left"))


def _most_counted(counts: Counter[str]) -> str:
    return counts.most_common(1)[0][0] if counts else ""
