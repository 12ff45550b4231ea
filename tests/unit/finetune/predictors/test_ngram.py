"""Counting runs of lexemes, beside a slow reference."""

import math
from collections import Counter
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from finetune.lexing import Lexeme, LexemeClass
from finetune.modalities.predicting import Code
from finetune.systems.predictors.ngram import NgramPredictor, NgramPredictorConfig

_WORDS = st.lists(st.sampled_from("abcde"), max_size=30)


def slow_rank(learnt: list[str], text: list[str], place: int, order: int) -> float:
    """Choices written out: by the longest run, the most frequent first; a tie counts against all but the very first."""
    chosen: set[str] = set()
    is_first_run = True
    for length in range(min(place, order - 1), -1, -1):
        run = text[place - length : place]
        counts = Counter(
            learnt[end] for end in range(length, len(learnt)) if learnt[end - length : end] == run
        )
        if not counts:
            continue
        if is_first_run and counts.most_common(1)[0][0] == text[place]:
            return 1
        is_first_run = False
        left = {word: count for word, count in counts.items() if word not in chosen}
        if text[place] in left:
            return len(chosen) + sum(count >= left[text[place]] for count in left.values())
        chosen |= set(left)
    return math.inf


@given(_WORDS, _WORDS, st.integers(1, 4))
def test_ranks_are_those_of_the_slow_reference(learnt: list[str], text: list[str], order: int) -> None:
    made = NgramPredictor(NgramPredictorConfig(order=order), [learnt])
    lexemes = [Lexeme(word, LexemeClass.IDENTIFIER, n, n + 1) for n, word in enumerate(text)]
    found = made.ranks([Code("k", "".join(text), partial(list, lexemes))], lambda _: None)[0]
    assert found.tolist() == [slow_rank(learnt, text, place, order) for place in range(len(text))]


def test_texts_are_counted_only_as_far_as_asked_for() -> None:
    texts = iter([["a", "b"], ["c"], ["d"]])
    NgramPredictor(NgramPredictorConfig(), texts, max_lexemes=3)
    assert next(texts) == ["d"]
