"""Lanes beside a slow reader that has whole epochs in lists: same tokens, same documents, same groups."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_prep.finished.prepared import open_prepared
from pretrain.data.corpora import WeightedCorpus
from pretrain.data.lanes import LaneReader
from pretrain.data.prefetch import LaneFeed
from pretrain.randomness import keyed_generator
from tests.unit.pretrain.data.plain_reader import PlainBlock, flat, plain_blocks, same_partition, steps
from tests.unit.pretrain.data.written import write_tokens

_LAYOUTS = (
    {"a": (1.0, [[300]])},
    {"a": (1.0, [[90, 110, 7], [250]]), "b": (1.0, [[40, 40, 40]])},
    {"a": (2.0, [[64, 64]]), "b": (0.5, [[33, 70, 51, 20], [80]])},
    {"a": (0.3, [[50, 60, 70, 80, 90, 1, 2]]), "b": (1.75, [[101, 99]])},
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("corpora")
    return [write_tokens(root / str(i), layout, seed=i) for i, layout in enumerate(_LAYOUTS)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    chosen=st.lists(st.integers(0, len(_LAYOUTS) - 1), min_size=1, max_size=2, unique=True),
    weights=st.tuples(*[st.sampled_from([1.0, 1.0, 2.0, 0.4])] * 2),
    lanes=st.integers(1, 4),
    segment_tokens=st.integers(1, 24),
    seed=st.integers(0, 3),
    shuffle=st.booleans(),
)
def test_the_lanes_read_what_the_plain_reader_reads(
    folders: list[Path],
    chosen: list[int],
    weights: tuple[float, float],
    lanes: int,
    segment_tokens: int,
    seed: int,
    shuffle: bool,
) -> None:
    parts = [(folders[i], weight) for i, weight in zip(chosen, weights, strict=False)]
    corpora = [WeightedCorpus(open_prepared(folder), weight) for folder, weight in parts]
    reader = LaneReader(corpora, "train", lanes, segment_tokens, seed, shuffle)
    expected = steps(plain_blocks(parts), lanes, segment_tokens, seed, shuffle, num_epochs=3)
    feed = LaneFeed(reader, range(lanes), 0)
    read = [feed.take(cursor) for cursor in range(len(expected))]
    feed.close()
    assert np.stack([batch.tokens_BL for batch in read]).ravel().tolist() == flat(expected, "token")
    for numbers, name in (("document_BL", "document"), ("group_BL", "group")):
        of_tokens = np.stack([getattr(batch, numbers) for batch in read]).ravel().tolist()
        assert same_partition(of_tokens, flat(expected, name))


@pytest.mark.parametrize("layout", range(len(_LAYOUTS)))
def test_whole_and_fractional_weights_are_kept_exactly_over_epochs(folders: list[Path], layout: int) -> None:
    blocks = plain_blocks([(folders[layout], 1.0)])
    reader = LaneReader(open_prepared(folders[layout]), "train", 1, 1, seed=5)
    num_epochs = 20
    counts = np.zeros(len(blocks), int)
    cursor = 0
    for _ in range(num_epochs):
        epoch = reader._epochs.epoch_of(cursor)
        counts += np.bincount(epoch.blocks_R, minlength=len(blocks))
        cursor = epoch.end_step
    for block, count in zip(blocks, counts.tolist(), strict=True):
        assert abs(count - num_epochs * block.weight) < 1


def test_blocks_without_weights_come_in_the_order_of_earlier_versions(folders: list[Path]) -> None:
    """The order as it was written before there were weights: one permutation of all blocks per epoch."""
    blocks: list[PlainBlock] = plain_blocks([(folders[1], 1.0)])
    reader = LaneReader(open_prepared(folders[1]), "train", 1, 10, seed=7)
    for epoch in range(3):
        order = keyed_generator(7, "block order", epoch).permutation(len(blocks))
        stream = [token for number in order for token, _, _ in blocks[number].tokens]
        first = epoch * reader.steps_per_epoch
        read = [reader.segment(first + step, 0).tokens_L for step in range(reader.steps_per_epoch)]
        assert np.concatenate(read).tolist() == stream[: 10 * reader.steps_per_epoch]
