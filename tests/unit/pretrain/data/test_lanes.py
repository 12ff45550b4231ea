"""Lanes: every token once an epoch, in an order that does not depend on the rank."""

from pathlib import Path

import numpy as np
import pytest

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from pretrain.data.lanes import LaneReader
from tests.example_corpus import stdlib_packages, write_corpus

LANES, SEGMENT = 3, 32


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    splits = {"train": ["string", "heapq", "fnmatch"], "validation": ["csv"], "test": ["bisect"]}
    folder = tmp_path_factory.mktemp("prep")
    return write_corpus(folder, {split: stdlib_packages(modules) for split, modules in splits.items()})


def whole_split(corpus: PreparedCorpus, split: str) -> np.ndarray:
    return np.concatenate([corpus.read_block(entry).tokens for entry in corpus.blocks(split)]).astype(
        np.int64
    )


def test_the_lanes_are_slices_of_the_stream_and_each_token_comes_once(corpus: PreparedCorpus) -> None:
    reader = LaneReader(corpus, "train", LANES, SEGMENT, seed=0)
    lanes = [reader.lane_tokens(lane, reader.steps_per_epoch) for lane in range(LANES)]
    stream = whole_split(corpus, "train")  # one block: no order to undo
    read = np.concatenate(lanes)
    assert np.array_equal(read, stream[: len(read)])
    assert len(stream) - len(read) < LANES * SEGMENT


def test_any_reader_at_any_step_reads_the_same(corpus: PreparedCorpus) -> None:
    first, second = (LaneReader(corpus, "train", LANES, SEGMENT, seed=7) for _ in range(2))
    steps = range(3 * first.steps_per_epoch)
    forwards = [first.segment(step, 1) for step in steps]
    for step in reversed(steps):
        segment = second.segment(step, 1)
        assert np.array_equal(segment.tokens_L, forwards[step].tokens_L)
        assert np.array_equal(segment.group_L, forwards[step].group_L)
        assert np.array_equal(segment.document_L, forwards[step].document_L)


def test_groups_are_repositories_and_change_with_the_epoch(corpus: PreparedCorpus) -> None:
    reader = LaneReader(corpus, "train", 1, SEGMENT, seed=0)
    groups = np.concatenate([reader.segment(step, 0).group_L for step in range(reader.steps_per_epoch)])
    block = corpus.read_block(corpus.blocks("train")[0])
    repositories = [document.repository for document in block.docs]
    assert len(np.unique(groups)) == len(set(repositories)) == 3
    boundary = int(
        block.doc_starts[repositories.index(repositories[0]) + repositories.count(repositories[0])]
    )
    assert groups[boundary - 1] != groups[boundary]
    next_epoch = reader.segment(reader.steps_per_epoch, 0).group_L
    assert not np.isin(next_epoch, groups).any(), "memory of one epoch must not reach into the next"


def test_documents_are_distinguished_inside_their_groups(tmp_path: Path) -> None:
    package = {"package": {f"{name}.py": f"{name} = 1\n" * 30 for name in ("a", "b", "c")}}
    corpus = write_corpus(tmp_path, dict.fromkeys(("train", "validation", "test"), package))
    reader = LaneReader(corpus, "train", 1, SEGMENT, seed=0)
    segments = [reader.segment(step, 0) for step in range(2 * reader.steps_per_epoch)]
    epochs = [segments[: reader.steps_per_epoch], segments[reader.steps_per_epoch :]]
    tokens, groups, documents = (
        np.concatenate([getattr(segment, name) for segment in epochs[0]])
        for name in ("tokens_L", "group_L", "document_L")
    )
    assert len(np.unique(groups)) == 1
    assert len(np.unique(documents)) == 3
    begins = np.flatnonzero(np.diff(documents)) + 1
    assert np.array_equal(begins, np.flatnonzero(tokens == corpus.tokenizer.eod_id)[: len(begins)] + 1)
    later = np.concatenate([segment.document_L for segment in epochs[1]])
    assert not np.isin(later, documents).any(), "another epoch's documents are others"


def test_too_small_a_split_is_a_clear_error(corpus: PreparedCorpus) -> None:
    with pytest.raises(UserError, match="fewer than one step of 64 lanes x 4096 tokens"):
        LaneReader(corpus, "train", 64, 4096, seed=0)


def test_a_damaged_block_is_named(corpus: PreparedCorpus, tmp_path: Path) -> None:
    splits = {split: stdlib_packages(["bisect"]) for split in ("train", "validation", "test")}
    damaged = write_corpus(tmp_path, splits)
    tar = tmp_path / "shards" / "train-00000.tar"
    data = bytearray(tar.read_bytes())
    data[damaged.blocks("train")[0].members["tokens.npy"].offset + 200] ^= 1
    tar.write_bytes(data)
    reader = LaneReader(damaged, "train", 1, SEGMENT, seed=0)
    with pytest.raises(UserError, match=r"train-00000\.tar is damaged"):
        reader.segment(0, 0)


def test_places_say_where_the_tokens_of_a_segment_lie(tmp_path: Path) -> None:
    splits = {"train": ["string", "heapq"], "validation": ["csv"], "test": ["bisect"]}
    corpus = write_corpus(tmp_path, {split: stdlib_packages(modules) for split, modules in splits.items()})
    reader = LaneReader(corpus, "train", LANES, SEGMENT, seed=3)
    for step in range(0, 2 * reader.steps_per_epoch, 5):
        for lane in range(LANES):
            places = reader.block_ranges(step, lane)
            parts = [
                corpus.read_block(place.block).tokens[place.start : place.start + place.num_tokens]
                for place in places
            ]
            assert np.array_equal(np.concatenate(parts), reader.segment(step, lane).tokens_L)
