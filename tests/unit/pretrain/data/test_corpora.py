"""Corpora that are mixed: one tokenizer, weights of corpus and source together, a name for the whole."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from cluster.errors import UserError
from data_prep.finished.prepared import open_prepared
from pretrain.data.config import DataConfig
from pretrain.data.corpora import MixedBlocks, corpora_fingerprint, open_corpora
from pretrain.data.lanes import LaneReader
from tests.unit.pretrain.data.written import write_tokens


def test_a_corpus_of_another_tokenizer_is_refused(tmp_path: Path) -> None:
    own = open_prepared(write_tokens(tmp_path / "own", {"a": (1.0, [[100]])}))
    other = write_tokens(tmp_path / "other", {"a": (1.0, [[100]])}, tokenizer=b"{ }")
    config = DataConfig.model_validate({"corpora": [{"location": str(other)}]})
    with pytest.raises(
        UserError, match=rf"corpus {other} was made with another tokenizer than {tmp_path}/own"
    ):
        open_corpora(own, config)


def test_a_corpus_that_is_not_there_is_named(tmp_path: Path) -> None:
    own = open_prepared(write_tokens(tmp_path / "own", {"a": (1.0, [[100]])}))
    missing = DataConfig.model_validate({"corpora": [{"location": str(tmp_path / "none")}]})
    with pytest.raises(UserError, match="none has no manifest.json"):
        open_corpora(own, missing)
    with pytest.raises(UserError, match=r"own_weight is 0 and pretrain\.data\.corpora is empty"):
        open_corpora(own, DataConfig(own_weight=0))


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), 2000])
def test_weights_that_mean_nothing_are_refused(weight: float) -> None:
    with pytest.raises(ValidationError):
        DataConfig.model_validate({"corpora": [{"location": "/x", "weight": weight}]})


def test_a_location_means_the_same_from_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    locations = ["other/prep", "/srv/prep", "s3://bucket/prep"]
    config = DataConfig.model_validate({"corpora": [{"location": location} for location in locations]})
    expected = [str(tmp_path / "other/prep"), "/srv/prep", "s3://bucket/prep"]
    assert [part.location for part in config.corpora] == expected


def test_blocks_have_the_weights_of_their_source_times_their_corpus(tmp_path: Path) -> None:
    own = open_prepared(write_tokens(tmp_path / "own", {"a": (2.0, [[100, 50]]), "b": (0.5, [[30]])}))
    other = write_tokens(tmp_path / "other", {"a": (1.0, [[10]])})
    config = DataConfig.model_validate(
        {"own_weight": 3, "corpora": [{"location": str(other), "weight": 0.25}]}
    )
    corpora = open_corpora(own, config)
    blocks = MixedBlocks(corpora, "train")
    assert blocks.weights_N.tolist() == [6.0, 6.0, 1.5, 0.25]
    assert blocks.sizes_N.tolist() == [100, 50, 30, 10]
    assert blocks.sources_N.tolist() == [0, 0, 1, 2]
    assert [blocks.find(number)[0] for number in range(4)] == [0, 0, 0, 1]
    reader = LaneReader(corpora, "train", 2, 8, seed=0)
    places = [reader.block_ranges(step, lane) for step in range(reader.steps_per_epoch) for lane in range(2)]
    for place in (place for places_of_lane in places for place in places_of_lane):
        assert corpora[place.corpus_number].corpus.blocks("train").count(place.block) == 1


def test_the_mixtures_name_changes_with_corpora_and_weights(tmp_path: Path) -> None:
    own = open_prepared(write_tokens(tmp_path / "own", {"a": (1.0, [[100]])}))
    other = str(write_tokens(tmp_path / "other", {"a": (1.0, [[10]])}, seed=1))
    configs: list[dict[str, object]] = [
        {},
        {"own_weight": 2.0},
        {"corpora": [{"location": other}]},
        {"corpora": [{"location": other, "weight": 0.5}]},
        {"own_weight": 0, "corpora": [{"location": other}]},
    ]
    names = [corpora_fingerprint(open_corpora(own, DataConfig.model_validate(config))) for config in configs]
    assert len(set(names)) == len(names)
    assert names[0] == own.manifest_sha256


def test_repeats_in_one_epoch_share_no_group(tmp_path: Path) -> None:
    folder = write_tokens(tmp_path / "own", {"a": (3.0, [[40]])})
    reader = LaneReader(open_prepared(folder), "train", 1, 40, seed=0)
    assert reader.steps_per_epoch == 3
    groups = [set(reader.segment(step, 0).group_L.tolist()) for step in range(6)]
    assert len(set.union(*groups)) == sum(map(len, groups))
    tokens = [reader.segment(step, 0).tokens_L for step in range(6)]
    assert all(np.array_equal(tokens[0], other) for other in tokens)
    assert len({reader.block_ranges(step, 0)[0].reading for step in range(6)}) == 6


def test_a_fraction_too_small_for_one_step_is_a_clear_error(tmp_path: Path) -> None:
    folder = write_tokens(tmp_path / "own", {"a": (0.001, [[40, 40]])})
    with pytest.raises(UserError, match="fewer than one step of 2 lanes x 30 tokens"):
        LaneReader(open_prepared(folder), "train", 2, 30, seed=0)
