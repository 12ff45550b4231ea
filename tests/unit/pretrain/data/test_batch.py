"""Batches: the lanes' tokens in their orders, whatever lanes share a batch; holes end with their token."""

from pathlib import Path

import numpy as np
import pytest
import torch

from data_prep.finished.prepared import PreparedCorpus
from pretrain.data.batch import Batch, left_to_right_batch, training_batch
from pretrain.data.lanes import LaneReader
from pretrain.orders.config import ObjectiveConfig
from pretrain.orders.sampling import OrderMixture
from pretrain.orders.words import WordPieces
from tests.example_corpus import stdlib_packages, write_corpus

CPU = torch.device("cpu")
LANES, SEGMENT = 4, 32


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    splits = {"train": ["string", "heapq", "fnmatch"], "validation": ["csv"], "test": ["bisect"]}
    folder: Path = tmp_path_factory.mktemp("prep")
    return write_corpus(folder, {split: stdlib_packages(modules) for split, modules in splits.items()})


@pytest.fixture(scope="module")
def reader(corpus: PreparedCorpus) -> LaneReader:
    return LaneReader(corpus, "train", LANES, SEGMENT, seed=0)


def mixture_of(corpus: PreparedCorpus, **changes: object) -> OrderMixture:
    words = WordPieces.of_tokenizer(corpus.tokenizer, CPU)
    return OrderMixture(ObjectiveConfig.model_validate(changes), SEGMENT, words, CPU)


def tensors(batch: Batch) -> list[torch.Tensor]:
    found = [batch.tokens_BL, batch.wanted_BP]
    for places in (batch.content, batch.targets):
        found += [places.position_BX, places.rank_BX, places.group_BX]
        found += [] if places.document_BX is None else [places.document_BX]
    return found


def test_the_wanted_tokens_are_those_at_the_targets(corpus: PreparedCorpus, reader: LaneReader) -> None:
    holes = dict(spans=0, left_to_right=0, infill=1, known_length_share=0)
    end_hole_id = corpus.tokenizer.special_id("<end_hole>")
    num_ends = 0
    for mixture in (mixture_of(corpus, spans=1, infill=0), mixture_of(corpus, **holes)):
        batch = training_batch(reader, mixture, seed=1, step=2, lanes=range(LANES), with_documents=False)
        for lane in range(LANES):
            token_at = dict(
                zip(batch.content.position_BX[lane].tolist(), batch.tokens_BL[lane].tolist(), strict=True)
            )
            positions = batch.targets.position_BX[lane].tolist()
            for position, wanted in zip(positions, batch.wanted_BP[lane].tolist(), strict=True):
                if wanted == end_hole_id:
                    num_ends += 1
                    assert position not in token_at, "a hole ends where no token stands"
                else:
                    assert wanted == token_at[position]
    assert num_ends == LANES, "each hole of unknown length ends once, and nothing else does"


def test_a_batch_is_its_lanes_one_by_one(corpus: PreparedCorpus, reader: LaneReader) -> None:
    mixture = mixture_of(corpus)
    together = tensors(training_batch(reader, mixture, 1, 5, range(LANES), with_documents=True))
    alone = [
        tensors(training_batch(reader, mixture, 1, 5, range(lane, lane + 1), with_documents=True))
        for lane in range(LANES)
    ]
    for whole, parts in zip(together, zip(*alone, strict=True), strict=True):
        assert torch.equal(whole, torch.cat(parts))


@pytest.mark.parametrize("with_documents", [True, False])
def test_a_part_of_a_batch_is_that_of_these_lanes(
    corpus: PreparedCorpus, reader: LaneReader, with_documents: bool
) -> None:
    mixture = mixture_of(corpus)
    whole = training_batch(reader, mixture, 1, 5, range(LANES), with_documents)
    part = whole.part(1, 3)
    alone = training_batch(reader, mixture, 1, 5, range(1, 3), with_documents)
    assert (part.content.extent, part.targets.extent) == (alone.content.extent, alone.targets.extent)
    assert len(tensors(part)) == len(tensors(alone))
    for cut, expected in zip(tensors(part), tensors(alone), strict=True):
        assert torch.equal(cut, expected)


def test_groups_and_documents_are_the_readers(corpus: PreparedCorpus, reader: LaneReader) -> None:
    batch = training_batch(reader, mixture_of(corpus, infill=0), 1, 0, range(LANES), with_documents=True)
    plain = left_to_right_batch(reader, 0, range(LANES), with_documents=True, device=CPU)
    for lane in range(LANES):
        segment = reader.segment(0, lane)
        for content in (batch.content, plain.content):
            assert content.document_BX is not None
            assert np.array_equal(content.group_BX[lane], segment.group_L)
            assert np.array_equal(content.document_BX[lane], segment.document_L)
        index_P = batch.targets.position_BX[lane].numpy()
        assert batch.targets.document_BX is not None
        assert np.array_equal(batch.targets.group_BX[lane], segment.group_L[index_P])
        assert np.array_equal(batch.targets.document_BX[lane], segment.document_L[index_P])


def test_documents_are_left_out_where_nothing_asks_for_them(
    corpus: PreparedCorpus, reader: LaneReader
) -> None:
    batch = training_batch(reader, mixture_of(corpus), 1, 0, range(LANES), with_documents=False)
    assert batch.content.document_BX is None
    assert batch.targets.document_BX is None


def test_plain_left_to_right_predicts_every_token_from_those_before(reader: LaneReader) -> None:
    batch = left_to_right_batch(reader, 0, range(LANES), with_documents=False, device=CPU)
    expected = torch.arange(SEGMENT).expand(LANES, SEGMENT)
    assert torch.equal(batch.targets.position_BX, expected)
    assert torch.equal(batch.targets.rank_BX, expected + 1)
    assert torch.equal(batch.content.rank_BX, expected + 1)
    assert torch.equal(batch.wanted_BP, batch.tokens_BL)
