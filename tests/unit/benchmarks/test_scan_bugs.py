"""The parts of the scan's benchmark, by cases small enough to count by hand."""

import math

import numpy as np
import pytest

from benchmarks.scan_bugs import Trigrams, buggy_functions, changed_line, found_in_top, rank_correlation
from pretrain.inference.scanned_text import ScannedLine, ScannedText
from pretrain.inference.text_ranges import ByteRange

_FUNCTION = "def f(a, b):\n    c = a + 1\n    if c > b:\n        return c\n    c = c * b\n    return c - a\n"


def test_only_bugs_that_change_one_line_count() -> None:
    assert changed_line("a\nb\nc\n", "a\nx\nc\n") == 2
    assert changed_line("a\nb\nc\n", "a\nc\n") is None
    assert changed_line("a\nb\nc\n", "a\nx\ny\nc\n") is None
    assert changed_line("a\nb\nc\n", "x\nb\nz\n") is None
    items = list(buggy_functions([_FUNCTION, "def short():\n    pass\n"]))
    assert len(items) == 1
    before, after = _FUNCTION.split("\n"), items[0].text.decode().split("\n")
    assert [
        number for number, both in enumerate(zip(before, after, strict=True), start=1) if len({*both}) > 1
    ] == [items[0].line]


def test_lines_that_surprise_equally_share_their_places() -> None:
    lines = tuple(
        ScannedLine(number, ByteRange(0, 1), range(1), np.zeros(1), np.zeros(1)) for number in (1, 2, 4, 5)
    )
    scan = ScannedText(lines, 4, sees_all=True)
    assert found_in_top(scan, [1.0, 9.0, 3.0, 2.0], 2) == [1.0, 1.0, 1.0]
    assert found_in_top(scan, [1.0, 9.0, 3.0, 2.0], 5) == [0.0, 1.0, 1.0]
    assert found_in_top(scan, [0.0] * 4, 4) == [1 / 4, 3 / 4, 1.0]
    assert found_in_top(scan, [5.0, 5.0, 9.0, 0.0], 1) == [0.0, 1.0, 1.0]
    assert found_in_top(scan, [0.0] * 4, 3) == [0.0, 0.0, 0.0], "a line without a token of its own"


def test_trigrams_are_a_distribution_that_prefers_what_was_seen() -> None:
    trigrams = Trigrams([np.array([0, 1, 2, 3, 1, 2, 3, 1, 2, 0])], vocab_size=5)
    for before in ([], [1], [1, 2], [4, 4]):
        given = [float(trigrams.log_probabilities([*before, token])[-1]) for token in range(5)]
        assert math.fsum(map(math.exp, given)) == pytest.approx(1.0)
    after_both = [float(trigrams.log_probabilities([1, 2, token])[-1]) for token in range(5)]
    assert max(range(5), key=after_both.__getitem__) == 3


def test_rank_correlation() -> None:
    assert rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([0.0, 5.0, 6.0])) == pytest.approx(1.0)
    assert rank_correlation(np.array([1.0, 2.0, 9.0]), np.array([3.0, 2.0, 1.0])) == pytest.approx(-1.0)
