"""What copying and counting alone achieve.

Shapes: N training texts, M some of them, Q queries, V words.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from cluster.config import Config
from cluster.errors import UserError
from finetune.examples import Pair, WritingData
from finetune.lexical import sub_tokens
from finetune.systems.base import Base, OnProgress
from pretrain.randomness import keyed_generator

_MAX_PRODUCTS = 1 << 24
"""Similarities held at once: 128 MB if none of them is 0."""
_AT_ONCE = 2048
_LEXEME = re.compile(r"\s+|\w+|[^\w\s]")
_END = ""
"""No lexeme is empty."""

Given = tuple[str, str | None]
"""Source and suffix."""


class CopyConfig(Config):
    """Writes the source."""

    kind: Literal["copy"] = "copy"


class ConstantConfig(Config):
    """Writes one text for all sources: the target to learn that has most words in common with the others.

    What a metric gives to it, it gives to nothing at all.
    """

    kind: Literal["constant"] = "constant"
    compared_with: PositiveInt = 1000
    """Targets, drawn by seed."""


class NearestConfig(Config):
    """Writes what belongs to the training source most like the source: TF-IDF over parts of words, cosine."""

    kind: Literal["nearest"] = "nearest"


class NgramConfig(Config):
    """Goes on with the lexeme that most often followed the longest run of lexemes that training has seen."""

    kind: Literal["ngram"] = "ngram"
    order: PositiveInt = 5
    """Lexemes of a run with the one that follows it; white space is a lexeme too."""
    max_new_lexemes: PositiveInt = 64


class _Lexical:
    """Nothing to train, nothing cut."""

    learner = None

    def __init__(self) -> None:
        self.cut: dict[str, int] = {}


class CopyWriter(_Lexical):
    """`Writer` that copies."""

    def write(self, sources: Sequence[Given], on_progress: OnProgress) -> list[str]:
        """The sources; nothing for a hole."""
        on_progress(len(sources))
        return [source if suffix is None else "" for source, suffix in sources]


class ConstantWriter(_Lexical):
    """`Writer` that looks at nothing."""

    def __init__(self, config: ConstantConfig, pairs: Sequence[Pair], seed: int) -> None:
        super().__init__()
        targets = [pair.references[0] for pair in pairs]
        order = keyed_generator(seed, "constant text").permutation(len(targets))
        self._text = _most_common(targets, order[: config.compared_with])

    def write(self, sources: Sequence[Given], on_progress: OnProgress) -> list[str]:
        """The one text, so many times."""
        on_progress(len(sources))
        return [self._text] * len(sources)


class NearestWriter(_Lexical):
    """`Writer` that looks up."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        super().__init__()
        texts = [_both_sides((pair.source, pair.suffix)) for pair in pairs]
        self._vectorizer = TfidfVectorizer(analyzer=sub_tokens, sublinear_tf=True)
        try:
            self._text_NV = self._vectorizer.fit_transform(texts)
        except ValueError:  # what scikit-learn makes of texts without words
            raise UserError(
                "the training sources hold no words, so none is nearest: use another baseline"
            ) from None
        self._targets = [pair.references[0] for pair in pairs]

    def write(self, sources: Sequence[Given], on_progress: OnProgress) -> list[str]:
        """The nearest's target; among equals the first."""
        found: list[str] = []
        size = max(1, _MAX_PRODUCTS // len(self._targets))
        for first in range(0, len(sources), size):
            texts = [_both_sides(source) for source in sources[first : first + size]]
            similar_QN = self._vectorizer.transform(texts) @ self._text_NV.T
            nearest_Q = np.asarray(similar_QN.argmax(axis=1)).ravel()
            found += [self._targets[number] for number in nearest_Q.tolist()]
            on_progress(len(found))
        return found


class NgramWriter(_Lexical):
    """`Writer` that counts."""

    def __init__(self, config: NgramConfig, pairs: Iterable[Pair]) -> None:
        super().__init__()
        self._config = config
        self._best = _most_frequent_followers(pairs, config.order)

    def write(self, sources: Sequence[Given], on_progress: OnProgress) -> list[str]:
        """What follows, up to where texts end; a hole's suffix plays no part."""
        found = []
        for source, _ in sources:
            found.append("".join(self._following(_LEXEME.findall(source))))
            on_progress(len(found))
        return found

    def _following(self, lexemes: list[str]) -> Iterator[str]:
        past = lexemes[-self._config.order :]
        for _ in range(self._config.max_new_lexemes):
            lexeme = self._next(past)
            if lexeme == _END:
                return
            yield lexeme
            past = [*past, lexeme][-self._config.order :]

    def _next(self, past: Sequence[str]) -> str:
        for length in range(min(len(past), self._config.order - 1), -1, -1):
            found = self._best.get(tuple(past[len(past) - length :]))
            if found is not None:
                return found
        return _END


def _most_frequent_followers(pairs: Iterable[Pair], order: int) -> dict[tuple[str, ...], str]:
    """Of every run of up to `order` - 1 lexemes; among equals the one seen first."""
    followers: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for pair in pairs:
        # Cut as they are when something is written: no lexeme reaches from source to target.
        lexemes = [*_LEXEME.findall(pair.source), *_LEXEME.findall(pair.references[0]), _END]
        for place, lexeme in enumerate(lexemes):
            for length in range(min(place, order - 1) + 1):
                followers[tuple(lexemes[place - length : place])][lexeme] += 1
    return {run: counts.most_common(1)[0][0] for run, counts in followers.items()}


def _most_common(targets: Sequence[str], others_M: NDArray[np.int64]) -> str:
    """The target whose distinct words have the highest mean F1 with those of `others_M`; among equals the first."""
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(analyzer=_words, binary=True, dtype=np.int64)
    try:
        has_NV = vectorizer.fit_transform(targets)
    except ValueError:  # what scikit-learn makes of texts without words
        raise UserError("the targets to learn hold no words, so none is like the others") from None
    words_N = np.asarray(has_NV.sum(axis=1)).ravel()
    best, best_mean = 0, -1.0
    for first in range(0, len(targets), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        shared_NM = (has_NV[part] @ has_NV[others_M].T).toarray()
        mean_N = (2 * shared_NM / np.maximum(1, words_N[part, None] + words_N[others_M])).mean(axis=1)
        if mean_N.max() > best_mean:
            best, best_mean = first + int(mean_N.argmax()), float(mean_N.max())
    return targets[best]


def _words(text: str) -> list[str]:
    return [lexeme.lower() for lexeme in _LEXEME.findall(text) if not lexeme.isspace()]


def _both_sides(given: Given) -> str:
    source, suffix = given
    return source if suffix is None else f"{source} {suffix}"


def build(
    config: CopyConfig | ConstantConfig | NearestConfig | NgramConfig,
    base: Base,
    data: WritingData,
    seed: int,
) -> CopyWriter | ConstantWriter | NearestWriter | NgramWriter:
    """The writer; of the base nothing is used."""
    match config:
        case ConstantConfig():
            return ConstantWriter(config, data.train, seed)
        case NearestConfig():
            return NearestWriter(data.train)
        case NgramConfig():
            return NgramWriter(config, data.train)
        case _:
            return CopyWriter()
