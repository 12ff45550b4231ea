"""Holes of documents are parts of them, and the share of a gap is that of means over documents."""

import heapq
import inspect
import math
import statistics

import pytest
import torch

from benchmarks.hole_lengths import (
    KINDS,
    PER_DOCUMENT,
    Filler,
    Item,
    closed,
    held_out_items,
    interval,
    summed,
)
from data_prep.finished.prepared import PreparedCorpus
from pretrain.inference.language_model import PermutationLM
from tests.example_corpus import stdlib_packages, tiny_model, write_corpus

_ITEMS = [Item(unit, "", "x", "") for unit in ("a", "a", "b", "c", "d")]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    modules = {"train": ["string"], "validation": ["argparse"], "test": ["statistics", "heapq"]}
    splits = {split: stdlib_packages(names) for split, names in modules.items()}
    return write_corpus(tmp_path_factory.mktemp("prep"), splits)


@pytest.mark.parametrize("kind", KINDS)
def test_holes_are_parts_of_held_out_documents(corpus: PreparedCorpus, kind: str) -> None:
    items = list(held_out_items(corpus, "test", KINDS[kind]))
    assert 0 < len(items) <= 2 * PER_DOCUMENT
    assert items == list(held_out_items(corpus, "test", KINDS[kind]))
    whole = [inspect.getsource(module) for module in (statistics, heapq)]
    for item in items:
        assert item.before + item.hole + item.after in whole
        assert item.hole.strip()
        assert (item.hole.count("\n") == 0) or kind != "rest of a line"


def test_the_share_of_the_gap_is_that_of_means() -> None:
    values = {
        "fixed": [0.0, 0.0, 0.0, 10.0, 0.0],
        "own": [5.0, 4.0, 6.0, 15.0, 5.0],
        "given": [10.0, 10.0, 10.0, 20.0, 10.0],
    }
    assert closed(_ITEMS, values).startswith("50% (")
    assert closed(_ITEMS, values | {"given": values["fixed"]}) == "no clear gap"
    assert interval(_ITEMS, values["own"]).startswith("7.0 (")
    assert summed(_ITEMS, values["own"]).tolist() == [[9.0, 2.0], [6.0, 1.0], [15.0, 1.0], [5.0, 1.0]]


def test_bits_are_those_of_the_texts_that_are_filled_in(corpus: PreparedCorpus) -> None:
    torch.manual_seed(0)
    model = PermutationLM(tiny_model(corpus.tokenizer.vocab_size), corpus.tokenizer, 128)
    filler, sides = Filler(model), [(f"def f{number}(x):\n", "\n") for number in range(40)]
    found = [row[0] for row in model.infill_texts(sides, length=1)]
    pairs = [
        (Item("a", *both, ""), one) for both, one in zip(sides, found, strict=True) if one.text.isascii()
    ]
    assert pairs, "all of them are parts of characters"
    items = [Item("a", item.before, one.text, item.hole) for item, one in pairs]
    assert filler.fill(items, 1) == filler.fill(items, [1] * len(items)) == [one.text for _, one in pairs]
    known, unknown = filler.bits(items)
    assert known == pytest.approx([-one.log_likelihood / math.log(2) for _, one in pairs], rel=1e-5)
    assert (unknown > 0).all()
    assert len(filler.fill(items, None)) == len(items)
