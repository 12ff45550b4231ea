"""Prediction by counting n-grams of lexemes: the baseline of every model that completes."""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveInt

from finetune.modalities.base import ModalityName, OnProgress
from finetune.modalities.predicting import Code, PredictingData
from finetune.systems.base import Base, SystemConfigBase

_Run = tuple[str, ...]


class NgramPredictorConfig(SystemConfigBase):
    """The settings of an n-gram predictor.

    Choices are the lexemes that followed the longest known run of lexemes before the place, the most frequent first;
    then those that followed a run one lexeme shorter, and so on down to all lexemes that were counted.
    """

    modality: ClassVar[ModalityName] = "predict"
    learns: ClassVar[bool] = False

    kind: Literal["ngram_predictor"] = "ngram_predictor"
    order: PositiveInt = 3
    """Lexemes of a run, including the one that follows it."""

    def build(self, base: Base, data: PredictingData, seed: int) -> "NgramPredictor":
        """Build the predictor; it reads only as many training texts as it counts."""
        return NgramPredictor(self, ([one.text for one in item.lexemes] for item in data.train))


class Followers:
    """The lexemes that followed a run of lexemes, with their counts."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    @cached_property
    def first(self) -> str:
        """The most frequent lexeme; of equally frequent ones the one that was counted first."""
        return self.count.most_common(1)[0][0]

    @cached_property
    def _ascending(self) -> list[int]:
        return sorted(self.count.values())

    def num_as_frequent(self, lexeme: str) -> int:
        """Return how many lexemes are at least as frequent as this one, itself included."""
        return len(self._ascending) - bisect_left(self._ascending, self.count[lexeme])


class NgramPredictor:
    """A `Predictor` that counts n-grams."""

    learner = None

    def __init__(
        self, config: NgramPredictorConfig, texts: Iterable[Sequence[str]], max_lexemes: int = 2_000_000
    ) -> None:
        """Count training texts until they have `max_lexemes` lexemes, to limit memory."""
        self.cut: dict[str, int] = {}
        self._order = config.order
        self._after: defaultdict[_Run, Followers] = defaultdict(Followers)
        num_lexemes = 0
        for text in texts:
            for place in range(len(text)):
                for run in self._runs(text, place):
                    self._after[run].count[text[place]] += 1
            num_lexemes += len(text)
            if num_lexemes >= max_lexemes:
                break

    def ranks(self, items: Sequence[Code], on_progress: OnProgress) -> list[NDArray[np.float64]]:
        """Return the ranks of every item's lexemes; ties count against a lexeme, unless it is the first choice."""
        found = []
        for number, item in enumerate(items, start=1):
            texts = [one.text for one in item.lexemes]
            found.append(np.array([self._rank(texts, place) for place in range(len(texts))]))
            on_progress(number)
        return found

    def _rank(self, texts: Sequence[str], place: int) -> float:
        seen = [self._after[run] for run in self._runs(texts, place) if run in self._after]
        wanted = texts[place]
        if seen and seen[0].first == wanted:
            return 1
        if seen and wanted in seen[0].count:
            return seen[0].num_as_frequent(wanted)
        for longer, followers in pairwise(seen):
            if wanted in followers.count:
                # What followed the longer run also followed this one, and already was a choice.
                chosen_before = sum(followers.count[one] >= followers.count[wanted] for one in longer.count)
                return len(longer.count) + followers.num_as_frequent(wanted) - chosen_before
        return math.inf

    def _runs(self, texts: Sequence[str], place: int) -> list[_Run]:
        """Return the runs before a place, the longest first and the empty one last."""
        longest = min(place, self._order - 1)
        return [tuple(texts[place - length : place]) for length in range(longest, -1, -1)]
