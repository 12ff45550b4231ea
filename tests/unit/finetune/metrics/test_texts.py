"""Exact match, edit similarity and ROUGE-L against plain references."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetune.metrics.edit import edit_similarity, plain_literals
from finetune.metrics.exact import exact_match, exact_match_tokens
from finetune.metrics.rouge import rouge_l


def _common(first: str | list[str], second: str | list[str]) -> int:
    """The length of the longest common subsequence, by its recurrence."""
    if not first or not second:
        return 0
    if first[-1] == second[-1]:
        return _common(first[:-1], second[:-1]) + 1
    return max(_common(first[:-1], second), _common(first, second[:-1]))


def test_exact_match_ignores_white_space_at_the_ends_only() -> None:
    references = [["a  b"], ["c d"], ["e"], ["f", "g"]]
    written = [" a  b\n", "c  d", "x", "g"]
    assert exact_match(references, written).value == 50.0
    assert exact_match_tokens(references, written).value == 75.0


@given(st.text("ab ", max_size=7), st.text("ab ", max_size=7))
def test_edit_similarity_is_the_share_of_characters_kept(one: str, text: str) -> None:
    one, text = one.strip(), text.strip()
    length = len(one) + len(text)
    expected = 100.0 if not length else 100 * 2 * _common(one, text) / length
    assert edit_similarity([[text]], [one]).value == pytest.approx(expected)


def test_edit_similarity_takes_the_nearest_reference() -> None:
    assert edit_similarity([["abcd", "abxx"]], ["abcd "]).value == 100.0


@pytest.mark.parametrize(
    ("code", "plain"),
    [
        ("x = <NUM_LIT> ;", "x = 0 ;"),
        ("x = <NUM_LIT:1> + <NUM_LIT:1>", "x = 1 + 1"),
        ('open ( "<STR_LIT>" , "<STR_LIT:utf-8>" )', 'open ( "" , "utf-8" )'),
        ("'<CHAR_LIT>' '<CHAR_LIT:a>' '<STR_LIT:\\n>'", "'' 'a' '\\n'"),
        # What is between the sign and the first `>`, so that one `>` stays of two.
        ("'<CHAR_LIT:>>' > '<CHAR_LIT:;>'", "'>' > ';'"),
        # Replaced one after the other, wherever they stand.
        ("<STR_LIT:><NUM_LIT:<STR_LIT:>", "<NUM_LIT:"),
        ("<NUM_LIT:<CHAR_LIT:>><CHAR_LIT:>", ""),
        ("a < b", "a < b"),
    ],
)
def test_literals_become_plain(code: str, plain: str) -> None:
    assert plain_literals(code) == plain


@given(
    st.lists(st.sampled_from("a b c".split()), max_size=7),
    st.lists(st.sampled_from("a b c".split()), max_size=7),
    st.sampled_from([1.0, 1.2]),
)
def test_rouge_l_is_its_definition(one: list[str], text: list[str], beta: float) -> None:
    common = _common(one, text)
    expected = 0.0
    if common:
        precision, recall = common / len(one), common / len(text)
        expected = 100 * (1 + beta**2) * precision * recall / (recall + beta**2 * precision)
    assert rouge_l([[" ".join(text)]], [" ".join(one)], beta).value == pytest.approx(expected)


def test_rouge_l_takes_the_best_reference() -> None:
    # A subsequence of 3 of 4 and 3 tokens.
    assert rouge_l([["x y", "the red cat sat"]], ["the cat sat"]).value == pytest.approx(100 * 6 / 7)
