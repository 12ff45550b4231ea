"""Both BLEUs against a slow reference and numbers worked out by hand; official ones are in test_official.py."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import UserError
from finetune.metrics.bleu import codexglue_bleu, summary_bleu, summary_tokens
from tests.unit.finetune.metrics.slow_bleu import slow_codexglue_bleu, slow_sentence_bleu

_texts = st.lists(st.sampled_from("a b c d".split()), max_size=12).map(" ".join)
_items = st.lists(st.tuples(st.lists(_texts, min_size=1, max_size=3), _texts), min_size=1, max_size=5)


@given(_items)
def test_corpus_bleu_is_its_definition(items: list[tuple[list[str], str]]) -> None:
    references, written = [texts for texts, _ in items], [one for _, one in items]
    assert codexglue_bleu(references, written).value == pytest.approx(
        slow_codexglue_bleu(references, written)
    )


@given(_items)
def test_summary_bleu_is_the_mean_of_sentence_bleus(items: list[tuple[list[str], str]]) -> None:
    references, written = [texts for texts, _ in items], [one for _, one in items]
    expected = [slow_sentence_bleu([text.split() for text in texts], one.split()) for texts, one in items]
    assert summary_bleu(references, written).value == pytest.approx(sum(expected) / len(expected))


def test_a_perfect_text_has_100_and_a_short_one_is_penalised() -> None:
    text = "return a + b ;"
    assert codexglue_bleu([[text]], [text]).value == pytest.approx(100)
    assert summary_bleu([[text]], [text]).value == pytest.approx(100)
    # Four of eight tokens, all right: the penalties are exp(1 - 8/4) and exp(1 - 9/5).
    whole, half = "a b c d e f g h", "a b c d"
    assert codexglue_bleu([[whole]], [half]).value == pytest.approx(100 * math.exp(-1))
    assert summary_bleu([[whole]], [half]).value == pytest.approx(100 * math.exp(-0.8))


def test_texts_without_tokens_score_as_officially() -> None:
    assert codexglue_bleu([["a b"], ["c"]], ["", " "]).value == 0.0
    assert summary_bleu([["a b"]], ["c"]).value == 0.0
    # The official code-to-text evaluator's own way: the penalty alone, exp(1 - 3/1).
    assert summary_bleu([["a b"]], [""]).value == pytest.approx(100 * math.exp(-2))


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Returns the User's name.", ["returns", "the", "user", "'", "s", "name", "."]),
        ("at 3.5 or x.y", ["at", "3", ".", "5", "or", "x", ".", "y"]),
        ("snake_case (see #1) ", ["snake", "_", "case", "(", "see", "#", "1", ")"]),
        ("Größe 10-20", ["größe", "10", "-", "20"]),
    ],
)
def test_summary_tokens_are_lower_case_words_and_single_marks(text: str, tokens: list[str]) -> None:
    assert summary_tokens(text) == tokens


def test_a_reference_that_is_one_string_is_refused() -> None:
    with pytest.raises(TypeError, match="references of item 1 are one string"):
        summary_bleu(["a summary"], ["a summary"])


@pytest.mark.parametrize(
    ("references", "written", "message"),
    [
        ([["a"], ["b"]], ["a"], "1 predictions for 2 items"),
        ([], [], "no predictions"),
        ([["a"], []], ["a", "b"], "item 2 has no reference"),
    ],
)
def test_misaligned_input_is_refused(references: list[list[str]], written: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        codexglue_bleu(references, written)
