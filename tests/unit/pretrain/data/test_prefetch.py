"""Reading ahead changes nothing: not what is read, not which step fails, and not how much stays open."""

import os
import zlib
from pathlib import Path

import numpy as np
import pytest

from cluster.errors import UserError
from data_prep.finished.manifest import read_manifest, write_manifest
from data_prep.finished.prepared import BlockEntry, PreparedCorpus, open_prepared
from pretrain.data import prefetch as feed_module
from pretrain.data.lanes import LaneReader
from pretrain.data.prefetch import LaneFeed
from tests.unit.pretrain.data.written import write_tokens

LANES, SEGMENT = 4, 16


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tokens(tmp_path / "prep", {"a": (1.0, [[300, 500], [400, 200, 100]])})


def reader_of(folder: Path, seed: int = 0) -> LaneReader:
    return LaneReader(open_prepared(folder), "train", LANES, SEGMENT, seed)


def flip_bit(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def test_any_order_of_cursors_reads_what_a_single_step_reads(folder: Path) -> None:
    reader, plain = reader_of(folder), reader_of(folder)
    lanes = range(1, 3)
    feed = LaneFeed(reader, lanes, 7)
    end = 2 * plain.steps_per_epoch
    for cursor in [7, 8, 9, 3, 4, 4, end, end + 1, 0, *range(plain.steps_per_epoch - 2, end)]:
        batch = feed.take(cursor)
        segments = [plain.segment(cursor, lane) for lane in lanes]
        assert (batch.cursor, batch.lanes) == (cursor, lanes)
        assert np.array_equal(batch.tokens_BL, [segment.tokens_L for segment in segments])
        assert np.array_equal(batch.group_BL, [segment.group_L for segment in segments])
        assert np.array_equal(batch.document_BL, [segment.document_L for segment in segments])
        assert {array.dtype for array in (batch.tokens_BL, batch.group_BL, batch.document_BL)} == {
            np.dtype(np.int64)
        }
    feed.close()


def test_a_batch_stays_what_it_was_while_later_ones_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "LANE_TOKENS", 2 * SEGMENT)
    feed, plain = LaneFeed(reader_of(folder), range(LANES), 0), reader_of(folder)
    batches = [feed.take(cursor) for cursor in range(2 * plain.steps_per_epoch)]
    feed.close()
    for batch in batches:
        expected = plain.batch(batch.cursor, range(LANES))
        assert np.array_equal(batch.tokens_BL, expected.tokens_BL)
        assert np.array_equal(batch.group_BL, expected.group_BL)
        assert np.array_equal(batch.document_BL, expected.document_BL)
        assert batch.crc_B == expected.crc_B


def test_the_digest_is_the_sum_of_the_lanes_checksums_however_lanes_are_shared(folder: Path) -> None:
    reader = reader_of(folder)
    for cursor in (0, 5, reader.steps_per_epoch):
        tokens = [reader.segment(cursor, lane).tokens_L for lane in range(LANES)]
        expected = sum(zlib.crc32(row.astype("<i4").tobytes(), lane) for lane, row in enumerate(tokens))
        whole = reader.batch(cursor, range(LANES))
        assert whole.digest == expected
        assert sum(reader.batch(cursor, range(lane, lane + 1)).digest for lane in range(LANES)) == expected


def test_the_step_that_needs_a_damaged_block_fails_and_none_before_it(folder: Path) -> None:
    def one_lane() -> LaneReader:
        return LaneReader(open_prepared(folder), "train", 1, SEGMENT, seed=1)

    reader = one_lane()
    block = reader.block_ranges(reader.steps_per_epoch // 2, 0)[-1].block
    first = next(
        step
        for step in range(reader.steps_per_epoch)
        if block in [place.block for place in reader.block_ranges(step, 0)]
    )
    assert first > 0, "otherwise this shows nothing"
    tar = folder / "shards" / f"{block.shard}.tar"
    flip_bit(tar, block.members["tokens.npy"].offset + 140)
    feed = LaneFeed(one_lane(), range(1), 0)
    for cursor in range(first):
        feed.take(cursor)
    for _ in range(2):
        with pytest.raises(UserError, match=rf"{block.shard}\.tar is damaged in block {block.key}"):
            feed.take(first)
    flip_bit(tar, block.members["tokens.npy"].offset + 140)
    assert np.array_equal(feed.take(first).tokens_BL[0], reader.segment(first, 0).tokens_L)
    feed.close()


def test_a_tar_that_changes_under_a_running_reader_is_noticed(folder: Path) -> None:
    reader = reader_of(folder)
    expected = reader.batch(0, range(LANES))
    block = reader.block_ranges(1, 0)[0].block
    tar = folder / "shards" / f"{block.shard}.tar"
    os.utime(tar)  # touched, but the same bytes
    assert np.array_equal(reader.batch(0, range(LANES)).tokens_BL, expected.tokens_BL)
    flip_bit(tar, block.members["tokens.npy"].offset + block.members["tokens.npy"].num_bytes - 1)
    with pytest.raises(UserError, match=rf"{block.shard}\.tar is damaged in block {block.key}"):
        reader.batch(1, range(LANES))
    with tar.open("r+b") as file:
        file.truncate(700)
    with pytest.raises(
        UserError, match=rf"{block.shard}\.tar is missing or cut short .* in block {block.key}"
    ):
        reader.batch(1, range(LANES))
    tar.unlink()
    with pytest.raises(
        UserError, match=rf"{block.shard}\.tar is missing or cut short .* in block {block.key}"
    ):
        reader.batch(1, range(LANES))


def test_forgetting_under_a_running_reader_is_distinguished_from_damage(folder: Path) -> None:
    reader = reader_of(folder)
    block = reader.block_ranges(0, 0)[0].block
    write_manifest(folder, read_manifest(folder).model_copy(update={"revision": 2}))
    (folder / "shards" / f"{block.shard}.tar").unlink()
    with pytest.raises(
        UserError, match="documents were forgotten after it was opened: start the reader again"
    ):
        reader.batch(0, range(LANES))


def test_few_blocks_stay_open_and_each_is_read_about_once_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_tokens(tmp_path / "prep", {"a": (1.0, [[64] * 50] * 4)})
    monkeypatch.setattr(feed_module, "LANE_TOKENS", 4 * SEGMENT)
    opened: list[str] = []
    read_block = PreparedCorpus.read_block

    def counted(corpus: PreparedCorpus, entry: BlockEntry) -> object:
        opened.append(entry.key)
        return read_block(corpus, entry)

    monkeypatch.setattr(PreparedCorpus, "read_block", counted)
    reader = LaneReader(open_prepared(folder), "train", 2, SEGMENT, seed=0)
    feed = LaneFeed(reader, range(2), 0)
    for cursor in range(reader.steps_per_epoch):
        feed.take(cursor)
        assert len(reader._open_blocks._opening) <= 2 * 3 + 2 + 16
    feed.close()
    assert len(set(opened)) == 200
    assert len(opened) < 200 + 10  # those of the next epoch are asked for at the end


def test_documents_of_a_segment_are_named(folder: Path) -> None:
    reader = reader_of(folder)
    corpus = open_prepared(folder)
    for cursor in range(0, reader.steps_per_epoch, 5):
        expected = []
        for place in reader.block_ranges(cursor, 2):
            block = corpus.read_block(place.block)
            at = np.searchsorted(
                block.doc_starts, np.arange(place.start, place.start + place.num_tokens), "right"
            )
            expected += [block.docs[i - 1].id for i in sorted(set(at.tolist()))]
        assert reader.documents(cursor, 2) == expected
        assert len(expected) == len(np.unique(reader.segment(cursor, 2).document_L))
