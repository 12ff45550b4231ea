"""Writers that copy or count: the baselines of every model that writes.

Shapes: N training texts, M some of them, Q queries, V words.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from cluster.errors import UserError
from finetune.lexical import sub_tokens
from finetune.modalities.base import ModalityName, OnProgress
from finetune.modalities.writing import Pair, WritingData
from finetune.systems.base import Base, SystemConfigBase
from pretrain.randomness import keyed_generator

MAX_PRODUCTS = 1 << 24
"""The most similarities in memory at once: 128 MB if none of them is 0."""
TEXTS_AT_ONCE = 2048
_LEXEME = re.compile(r"\s*(?:<[A-Z_]+(?::[^>\s]*)?>|\w+|[^\w\s])|\s+")
"""A normalised literal or line end in CodeXGLUE's notation is one lexeme."""

Run = tuple[str, ...]
Known = TypeVar("Known")
Given = tuple[str, str | None]
"""Source and suffix."""


class CopyConfig(SystemConfigBase):
    """The settings of a writer that copies the source."""

    modality: ClassVar[ModalityName] = "write"
    learns: ClassVar[bool] = False

    kind: Literal["copy"] = "copy"

    def build(self, base: Base, data: WritingData, seed: int) -> "CopyWriter":
        """Build the writer; `base`, `data` and `seed` have no effect."""
        return CopyWriter()


_COMPARED_TARGETS = 1000
"""The number of targets that all are compared with, sampled by seed."""


class ConstantConfig(SystemConfigBase):
    """The settings of a writer of one text for all sources: the training target with most words in common with others.

    Its score is what a metric gives without any use of the source.
    """

    modality: ClassVar[ModalityName] = "write"
    learns: ClassVar[bool] = False

    kind: Literal["constant"] = "constant"

    def build(self, base: Base, data: WritingData, seed: int) -> "ConstantWriter":
        """Build the writer; `base` has no effect."""
        return ConstantWriter(data.train, seed)


class NearestConfig(SystemConfigBase):
    """The settings of a writer of the nearest training source's target: cosine of TF-IDF over parts of words."""

    modality: ClassVar[ModalityName] = "write"
    learns: ClassVar[bool] = False

    kind: Literal["nearest"] = "nearest"

    def build(self, base: Base, data: WritingData, seed: int) -> "NearestWriter":
        """Build the writer; `base` and `seed` have no effect."""
        return NearestWriter(data.train)


class NgramConfig(SystemConfigBase):
    """The settings of a writer that appends the lexeme that most often followed the longest run seen in training.

    A text ends if that is more likely than any lexeme. How often targets ended after the longest such run is counted in
    training targets only; a lexeme that no target contains (a line end, if targets are parts of lines) is also an end.
    """

    modality: ClassVar[ModalityName] = "write"
    learns: ClassVar[bool] = False

    kind: Literal["ngram"] = "ngram"
    order: PositiveInt = 5
    """Lexemes of a run, including the one that follows it; white space belongs to the lexeme after it."""

    def build(self, base: Base, data: WritingData, seed: int) -> "NgramWriter":
        """Build the writer; `base` and `seed` have no effect."""
        return NgramWriter(self, data.train)


class _Lexical:
    """A writer that is not trained and truncates nothing."""

    learner = None

    def __init__(self) -> None:
        self.cut: dict[str, int] = {}


class CopyWriter(_Lexical):
    """A `Writer` that copies the source."""

    def write(self, sources: Sequence[Given], on_progress: OnProgress) -> list[str]:
        """Return the sources; an empty text for a hole."""
        on_progress(len(sources))
        return [source if suffix is None else "" for source, suffix in sources]


class ConstantWriter(_Lexical):
    """A `Writer` that does not use the source."""

    def __init__(self, pairs: Sequence[Pair], seed: int) -> None:
        super().__init__()
        targets = [pair.references[0] for pair in pairs]
        order = keyed_generator(seed, "constant text").permutation(len(targets))
        self._text = _most_common(targets, order[:_COMPARED_TARGETS])

    def write(self, sources: Sequence[Given], on_progress: OnProgress) -> list[str]:
        """Return the same text for every source."""
        on_progress(len(sources))
        return [self._text] * len(sources)


class NearestWriter(_Lexical):
    """A `Writer` that looks up the most similar training source."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        super().__init__()
        texts = [_both_sides((pair.source, pair.suffix)) for pair in pairs]
        self._vectorizer = TfidfVectorizer(analyzer=sub_tokens, sublinear_tf=True)
        try:
            self._text_NV = self._vectorizer.fit_transform(texts)
        except ValueError:  # scikit-learn's error for texts without words
            raise UserError(
                "the training sources hold no words, so none is nearest: use another baseline"
            ) from None
        self._targets = [pair.references[0] for pair in pairs]

    def write(self, sources: Sequence[Given], on_progress: OnProgress) -> list[str]:
        """Return the target of the nearest training source; of equally near ones the first."""
        found: list[str] = []
        size = max(1, MAX_PRODUCTS // len(self._targets))
        for first in range(0, len(sources), size):
            texts = [_both_sides(source) for source in sources[first : first + size]]
            similar_QN = self._vectorizer.transform(texts) @ self._text_NV.T
            nearest_Q = np.asarray(similar_QN.argmax(axis=1)).ravel()
            found += [self._targets[number] for number in nearest_Q.tolist()]
            on_progress(len(found))
        return found


class NgramWriter(_Lexical):
    """A `Writer` that counts n-grams."""

    def __init__(self, config: NgramConfig, pairs: Sequence[Pair], max_new_lexemes: int = 64) -> None:
        super().__init__()
        self._config, self._max_new_lexemes = config, max_new_lexemes
        read = [_lexemes(pair) for pair in pairs]
        self._followers = _followers(read, config.order)
        self._end_share = _end_shares(read, config.order)

    def write(self, sources: Sequence[Given], on_progress: OnProgress) -> list[str]:
        """Continue every source up to the predicted end; a hole's suffix has no effect."""
        found = []
        for source, _ in sources:
            found.append("".join(self._following(_LEXEME.findall(source))))
            on_progress(len(found))
        return found

    def _following(self, past: list[str]) -> Iterator[str]:
        for number in range(self._max_new_lexemes):
            past = past[1 - self._config.order :] if self._config.order > 1 else []
            found = _of_longest_run(self._followers, past)
            if found is None or (number and self._is_end_likelier(past, found)):
                return
            yield found.likeliest
            past = [*past, found.likeliest]

    def _is_end_likelier(self, past: Sequence[str], followers: "_Followers") -> bool:
        ended = _of_longest_run(self._end_share, past) or 0.0
        return followers.end_share > followers.share or ended > (1 - ended) * followers.share


@dataclass(frozen=True)
class _Followers:
    """The followers of a run: the likeliest lexeme of targets, its share, and the share of lexemes of no target."""

    likeliest: str
    share: float
    end_share: float


Read = tuple[list[str], int]
"""The lexemes of a pair's source and target, and how many are the source's."""


def _lexemes(pair: Pair) -> Read:
    """Split source and target separately, as in writing, so that no lexeme extends from source to target."""
    given = _LEXEME.findall(pair.source)
    return [*given, *_LEXEME.findall(pair.references[0])], len(given)


def _of_longest_run(of_run: Mapping[Run, Known], past: Sequence[str]) -> Known | None:
    """Return the value of the longest known run at the end of `past`; None if not even the empty run is known."""
    for first in range(len(past) + 1):
        found = of_run.get(tuple(past[first:]))
        if found is not None:
            return found
    return None


def _followers(read: Sequence[Read], order: int) -> dict[Run, _Followers]:
    """Return the followers of every run of up to `order` - 1 lexemes; of equally frequent ones the first seen."""
    # Targets begin without the blank that precedes their first lexeme in a text.
    held = {lexeme.lstrip(" ") for lexemes, num_given in read for lexeme in lexemes[num_given:]}
    counts: defaultdict[Run, Counter[str]] = defaultdict(Counter)
    for lexemes, _ in read:
        for place, lexeme in enumerate(lexemes):
            for length in range(min(place, order - 1) + 1):
                counts[tuple(lexemes[place - length : place])][lexeme] += 1
    return {run: found for run, count in counts.items() if (found := _likeliest(count, held)) is not None}


def _likeliest(counts: Counter[str], held: Set[str]) -> _Followers | None:
    num_seen = counts.total()
    known = Counter({lexeme: count for lexeme, count in counts.items() if lexeme.lstrip(" ") in held})
    if not known:
        return None
    ((lexeme, count),) = known.most_common(1)
    return _Followers(lexeme, count / num_seen, 1 - known.total() / num_seen)


def _end_shares(read: Sequence[Read], order: int) -> dict[Run, float]:
    """Return how often targets ended after a run of up to `order` - 1 lexemes whose last one is the target's."""
    seen: Counter[Run] = Counter()
    ended: Counter[Run] = Counter()
    for lexemes, num_given in read:
        for end in range(num_given + 1, len(lexemes) + 1):
            for length in range(min(end, order - 1) + 1):
                run = tuple(lexemes[end - length : end])
                seen[run] += 1
                ended[run] += end == len(lexemes)
    return {run: ended[run] / count for run, count in seen.items()}


def _most_common(targets: Sequence[str], others_M: NDArray[np.int64]) -> str:
    """Return the target whose distinct words have the highest mean F1 with those of `others_M`; of ties the first."""
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(analyzer=_words, binary=True, dtype=np.int64)
    try:
        has_NV = vectorizer.fit_transform(targets)
    except ValueError:  # scikit-learn's error for texts without words
        raise UserError("the targets to learn hold no words, so none is like the others") from None
    words_N = np.asarray(has_NV.sum(axis=1)).ravel()
    best, best_mean = 0, -1.0
    for first in range(0, len(targets), TEXTS_AT_ONCE):
        part = slice(first, first + TEXTS_AT_ONCE)
        shared_NM = (has_NV[part] @ has_NV[others_M].T).toarray()
        mean_N = (2 * shared_NM / np.maximum(1, words_N[part, None] + words_N[others_M])).mean(axis=1)
        if mean_N.max() > best_mean:
            best, best_mean = first + int(mean_N.argmax()), float(mean_N.max())
    return targets[best]


def _words(text: str) -> list[str]:
    return [lexeme.strip().lower() for lexeme in _LEXEME.findall(text) if not lexeme.isspace()]


def _both_sides(given: Given) -> str:
    source, suffix = given
    return source if suffix is None else f"{source} {suffix}"
