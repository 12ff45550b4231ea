"""CodeBLEU: its n-gram parts from their definition, the tree parts worked out by hand."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finetune.metrics.codebleu import CODEBLEU_LANGUAGES, codebleu, codebleu_parts
from finetune.metrics.keywords import KEYWORDS
from tests.unit.finetune.metrics.slow_bleu import matching_ngrams

_CODE = {
    "java": ("int f(int a) { int x = a + 1; return x; }", "int g(int b) { int y = b + 1; return y; }"),
    "csharp": ("int F(int a) { int x = a + 1; return x; }", "int G(int b) { int y = b + 1; return y; }"),
    "python": ("def f(a):\n    x = a + 1\n    return x", "def g(b):\n    y = b + 1\n    return y"),
    "javascript": (
        "function f(a) { let x = a + 1; return x; }",
        "function g(b) { let y = b + 1; return y; }",
    ),
    "go": ("func f(a int) int { x := a + 1; return x }", "func g(b int) int { y := b + 1; return y }"),
    "php": ("function f($a) { $x = $a + 1; return $x; }", "function g($b) { $y = $b + 1; return $y; }"),
    "ruby": ("def f(a)\n  x = a + 1\n  x\nend", "def g(b)\n  y = b + 1\n  y\nend"),
}

_tokens = st.lists(st.sampled_from("return x y int ;".split()), min_size=1, max_size=9).map(" ".join)


def _slow_ngram_parts(reference: str, written: str) -> tuple[float, float]:
    """One reference, one text: NLTK's smoothed BLEU and the weighted recall, in plain loops."""
    wanted, given = reference.split(), written.split()
    precision, recall = 1.0, 1.0
    for order in (1, 2, 3, 4):
        matches, total = matching_ngrams([wanted], given, order)
        precision *= (matches or 0.1) / max(1, total)
        if order == 1:
            weight = {token: 1.0 if token in ("return", "int") else 0.2 for token in wanted}
            matched = sum(
                min(wanted.count(token), given.count(token)) * weight[token] for token in set(wanted)
            )
            recall *= (matched or 0.1) / max(1, sum(weight[token] for token in wanted))
        else:
            matches, total = matching_ngrams([given], wanted, order)
            recall *= (matches or 0.1) / max(1, total)
    if not set(wanted) & set(given):
        return 0.0, 0.0
    penalty = 1.0 if len(given) > len(wanted) else math.exp(1 - len(wanted) / len(given))
    return penalty * precision**0.25, recall**0.25


@given(_tokens, _tokens)
def test_the_ngram_parts_are_their_definition(reference: str, written: str) -> None:
    parts = codebleu_parts(codebleu([[reference]], [written], "java"))
    ngram, weighted = _slow_ngram_parts(reference, written)
    assert parts.ngram == pytest.approx(ngram)
    assert parts.weighted_ngram == pytest.approx(weighted)


def test_every_language_has_code_here() -> None:
    assert set(_CODE) == set(CODEBLEU_LANGUAGES) == set(KEYWORDS)


@pytest.mark.parametrize("language", sorted(_CODE))
def test_renamed_code_has_the_same_tree_and_flow(language: str) -> None:
    code, renamed = _CODE[language]
    parts = codebleu_parts(codebleu([[code]], [renamed], language))
    assert (parts.syntax, parts.dataflow) == (1.0, 1.0)
    assert parts.num_flow_items >= 3
    assert parts.ngram < 1.0
    assert codebleu([[code]], [code], language).value == pytest.approx(100.0)


def test_the_value_is_the_mean_of_the_parts() -> None:
    code, _ = _CODE["java"]
    other = "int f(int a) { int x = 1; while (a > x) { x += a; } return a; }"
    measured = codebleu([[code], [other]], [other, code], "java")
    parts = codebleu_parts(measured)
    mean = (parts.ngram + parts.weighted_ngram + parts.syntax + parts.dataflow) / 4
    assert measured.value == pytest.approx(100 * mean)
    assert 0 < parts.syntax < 1
    assert 0 < parts.dataflow < 1


def test_syntax_is_the_share_of_the_references_subtrees() -> None:
    # module > assignment > binary_operator; the shorter code has no binary_operator, and so differs from there up:
    # none of the reference's three subtrees is found.
    assert codebleu_parts(codebleu([["x = a + b"]], ["x = a"], "python")).syntax == 0.0
    # The sum alone (module, binary_operator): one of three.
    assert codebleu_parts(codebleu([["x = a + b"]], ["c + d"], "python")).syntax == pytest.approx(1 / 3)


def test_a_data_flow_of_zero_counts_as_zero() -> None:
    """PyPI's codebleu 0.7.0 counts it as 1, which adds 25 points."""
    measured = codebleu([["x = a\ny = x"]], ["pass"], "python")
    parts = codebleu_parts(measured)
    assert (parts.dataflow, parts.num_flow_items) == (0.0, 4)
    assert measured.value < 25


def test_nothing_to_match_is_reported() -> None:
    parts = codebleu_parts(codebleu([["pass"]], ["pass"], "python"))
    assert (parts.syntax, parts.dataflow, parts.num_flow_items) == (1.0, 0.0, 0)


@pytest.mark.parametrize(
    ("language", "commented"),
    [
        ("java", "int f(int a) { /* b = a; */ int x = a + 1; // c = a\n return x; }"),
        ("csharp", "int F(int a) { /* b = a; */ int x = a + 1; // c = a\n return x; }"),
        ("python", 'def f(a):\n    """b = a"""\n    x = a + 1  # c = a // 2\n    return x'),
        ("javascript", "function f(a) { /* b */ let x = a + 1; // c\n return x; }"),
        ("go", "func f(a int) int { /* b */ x := a + 1; // c\n return x }"),
        ("php", "function f($a) { # b\n $x = $a + 1; // c\n return $x; }"),
        ("ruby", "def f(a)\n  # b = a\n  x = a + 1\n  x\nend"),
    ],
)
def test_comments_are_no_part_of_tree_and_flow(language: str, commented: str) -> None:
    for reference, written in ((_CODE[language][0], commented), (commented, _CODE[language][0])):
        parts = codebleu_parts(codebleu([[reference]], [written], language))
        assert (parts.syntax, parts.dataflow) == (1.0, 1.0)


def test_slashes_in_python_are_no_comment() -> None:
    """The official evaluator strips by Java's rule in every language: `//` would hide the rest of the line."""
    parts = codebleu_parts(codebleu([["x = a // b"]], ["x = a // (b + c)"], "python"))
    assert parts.syntax < 1.0


@pytest.mark.parametrize(
    "written", ["", "(((", "}" * 50, "\x00\ud800", "(" * 5000 + ")" * 5000, "x = " * 3000]
)
def test_broken_and_deep_code_is_judged(written: str) -> None:
    parts = codebleu_parts(codebleu([["x = a\ny = x"]], [written], "python"))
    assert 0.0 <= parts.syntax <= 1.0
    assert 0.0 <= parts.dataflow <= 1.0


def test_names_of_languages() -> None:
    code, _ = _CODE["csharp"]
    assert codebleu([[code]], [code], "cs").value == pytest.approx(100)
    with pytest.raises(ValueError, match="not cobol"):
        codebleu([["x"]], ["x"], "cobol")


def test_keywords_of_python_are_those_of_this_python() -> None:
    import keyword

    assert Counter(keyword.kwlist) <= Counter(KEYWORDS["python"])
