"""The analyses that benchmarks/results.md quotes, on predictions small enough to count by hand."""

import pytest

from benchmarks.analyses.defects import found_by_kind
from benchmarks.analyses.repairs import RepairCounts, count_repairs
from benchmarks.analyses.retrieval import distinct_mrr, highest_map_at_r
from benchmarks.analyses.translations import goes_round, shared_names_written


def _row(source: str, written: str, reference: str) -> dict[str, object]:
    return {"source": source, "written": written, "references": [reference]}


def test_repairs_are_counted_by_what_was_changed() -> None:
    rows = [
        _row("a b c", "a b c", "a c"),  # given back
        _row("a b c", "a c", "a c"),  # right: loses a token where the reference does
        _row("a b c d", "a b c", "a x c d"),  # loses a token elsewhere
        _row("a b c", "a x c", "a y c"),  # changed at the place, not right
    ]
    assert count_repairs(rows) == RepairCounts(
        items=4, unchanged=1, only_lost=2, at_the_place=2, right=1, references_only_lose=2
    )


def test_insertions_at_one_place_are_at_the_same_place() -> None:
    assert count_repairs([_row("a b", "a x b", "a y b")]).at_the_place == 1
    assert count_repairs([_row("a b c d", "a x b c d", "a b c y d")]).at_the_place == 0


def test_texts_that_decoding_could_not_write_go_round() -> None:
    run = "y [ 0 ] ; z , w ;".split()
    assert goes_round([*"x = ( a , b ) {".split(), *run, *run, run[0]])
    assert not goes_round([*"x = ( a , b ) {".split(), *run, *run])
    assert not goes_round([")"] * 16), "short repetitions are ordinary code"
    assert goes_round([")"] * 17)


def test_shared_names_are_those_of_source_and_reference() -> None:
    rows = [_row("getName reader", "getName", "getName reader other"), _row("short", "short", "short")]
    assert shared_names_written(rows) == pytest.approx(1 / 2)


def test_equal_queries_count_once() -> None:
    rows = [{"query": "a", "ranks": [1]}, {"query": "a", "ranks": [4]}, {"query": "b", "ranks": [2, 9]}]
    mrr, number = distinct_mrr(rows)
    assert (mrr, number) == (pytest.approx(((1 + 1 / 4) / 2 + 1 / 2) / 2), 2)


def test_wrong_programs_with_the_right_text_bound_map() -> None:
    texts = ["a", "b", "b", "c", "d"]  # of problems {0, 1}, {2, 3} and one more program
    relevant = [[1], [0], [3], [2], [0]]
    rows = [{"query": text, "relevant": one} for text, one in zip(texts, relevant, strict=True)]
    # From 0 the right text b is another program's too; from 3 as well; from 1 and 2 and 4 it is clear.
    assert highest_map_at_r(rows) == pytest.approx(3 / 5)
    with pytest.raises(ValueError, match="one partner"):
        highest_map_at_r([{"query": "a", "relevant": [1, 2]}])


def test_bugs_are_counted_by_the_kind_in_their_key() -> None:
    rows = [
        {"key": "test-1-wrong_negation-bug", "label": 1, "given": 1},
        {"key": "test-3-wrong_negation-bug", "label": 1, "given": 0},
        {"key": "test-2-off_by_one-sound", "label": 0, "given": 1},
    ]
    assert found_by_kind(rows) == {"sound": (1, 1), "wrong_negation": (1, 2)}
