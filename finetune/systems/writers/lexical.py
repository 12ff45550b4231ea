"""What copying and counting alone achieve.

Shapes: N training texts, M some of them, Q queries, V words.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeVar

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

Run = tuple[str, ...]
Known = TypeVar("Known")
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
    """Goes on with the lexeme that most often followed the longest run of lexemes that training has seen.

    It ends where more training targets ended behind the longest such run than went on; what follows the run within
    sources says nothing about ends.
    """

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

    def __init__(self, config: NgramConfig, pairs: Sequence[Pair]) -> None:
        super().__init__()
        self._config = config
        self._best = _most_frequent_followers(pairs, config.order)
        self._is_end = _ends(pairs, config.order)

    def write(self, sources: Sequence[Given], on_progress: OnProgress) -> list[str]:
        """What follows, up to where texts end; a hole's suffix plays no part."""
        found = []
        for source, _ in sources:
            found.append("".join(self._following(_LEXEME.findall(source))))
            on_progress(len(found))
        return found

    def _following(self, past: list[str]) -> Iterator[str]:
        for _ in range(self._config.max_new_lexemes):
            past = past[1 - self._config.order :] if self._config.order > 1 else []
            lexeme = _of_longest_run(self._best, past)
            if lexeme is None:
                return
            yield lexeme
            past = [*past, lexeme]
            if _of_longest_run(self._is_end, past):
                return


def _of_longest_run(of_run: Mapping[Run, Known], past: Sequence[str]) -> Known | None:
    """What is known of the longest run at the end of `past`; None where nothing is, of the empty run either."""
    for first in range(len(past) + 1):
        found = of_run.get(tuple(past[first:]))
        if found is not None:
            return found
    return None


def _most_frequent_followers(pairs: Sequence[Pair], order: int) -> dict[Run, str]:
    """Of every run of up to `order` - 1 lexemes; among equals the one seen first."""
    followers: defaultdict[Run, Counter[str]] = defaultdict(Counter)
    for pair in pairs:
        lexemes, _ = _lexemes(pair)
        for place, lexeme in enumerate(lexemes):
            for length in range(min(place, order - 1) + 1):
                followers[tuple(lexemes[place - length : place])][lexeme] += 1
    return {run: counts.most_common(1)[0][0] for run, counts in followers.items()}


def _ends(pairs: Sequence[Pair], order: int) -> dict[Run, bool]:
    """Of every run of 1 to `order` lexemes that ends in a target: whether more targets ended there than went on."""
    net: Counter[Run] = Counter()
    for pair in pairs:
        lexemes, num_given = _lexemes(pair)
        for end in range(num_given + 1, len(lexemes) + 1):
            for length in range(1, min(end, order) + 1):
                net[tuple(lexemes[end - length : end])] += 1 if end == len(lexemes) else -1
    return {run: count > 0 for run, count in net.items()}


def _lexemes(pair: Pair) -> tuple[list[str], int]:
    """Source and target, and how many are the source's.

    Cut as they are when something is written: no lexeme reaches from source to target.
    """
    given = _LEXEME.findall(pair.source)
    return [*given, *_LEXEME.findall(pair.references[0])], len(given)


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
