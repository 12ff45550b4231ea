"""What a decoding config says of texts holds for holes: batches, limits, samples."""

import math
from typing import Any

import pytest
import torch

from data_prep.finished.prepared import PreparedCorpus
from finetune.decoding.config import DecodingConfig
from finetune.modalities.writing import Pair
from finetune.systems.writers.permutation_lm import PermutationWriter, PermutationWriterConfig
from pretrain.inference import infilling
from pretrain.inference.generation import Generated
from tests.unit.finetune.systems.toys import as_data, hole_pairs, toy_base, toy_pairs, written

_CONFIG = PermutationWriterConfig(start="scratch", source_tokens=48, target_tokens=24)


def _writer(corpus: PreparedCorpus, **decoding: Any) -> PermutationWriter:
    config = PermutationWriterConfig.model_validate(_CONFIG.model_dump() | {"decoding": decoding})
    pairs = hole_pairs(4)
    writer = config.build(toy_base(corpus.tokenizer), as_data(pairs), seed=0)
    writer.learner.module.double().eval()
    return writer


def _never_ending(writer: PermutationWriter, corpus: PreparedCorpus) -> None:
    with torch.no_grad():
        writer.learner.module.network.output_bias_V[corpus.tokenizer.special_id("<end_hole>")] = -50.0


def _mixed() -> list[Pair]:
    """Holes in texts of other lengths, and texts to go on."""
    long = [Pair("long", "value = 1\n" * 5 + "x = ", ("1",), "\n" + "y = 2\n" * 3)]
    return [*hole_pairs(7), *toy_pairs(3), *long]


@pytest.mark.parametrize(
    "decoding", [{}, {"beam": 3}, {"temperature": 1.0, "top_k": 50}, {"max_length_ratio": 0.5}]
)
def test_holes_do_not_depend_on_the_batch(corpus: PreparedCorpus, decoding: dict[str, Any]) -> None:
    pairs = _mixed()
    alone = written(_writer(corpus, batch=1, **decoding), pairs)
    for batch in (6, 64):
        assert written(_writer(corpus, batch=batch, **decoding), pairs) == alone
    assert len(set(alone)) > 3


def test_holes_are_written_side_by_side(corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    lanes: list[int] = []
    made = infilling.Holes

    def holes(*arguments: Any) -> Any:
        text = made(*arguments)
        lanes.append(len(text.session.offset_B))
        return text

    monkeypatch.setattr(infilling, "Holes", holes)
    written(_writer(corpus, batch=64), hole_pairs(9))
    num_places = len(infilling.place_lengths(24))
    assert lanes == [9 * num_places]
    lanes.clear()
    written(_writer(corpus, batch=3 * num_places), hole_pairs(9))
    assert lanes == [3 * num_places] * 3, "a batch counts every layout of a hole"


@pytest.mark.parametrize("beam", [1, 3])
def test_a_filling_is_as_long_as_its_source_allows(
    corpus: PreparedCorpus, beam: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [Pair("0", "a", ("1",), "b"), Pair("1", "a = b + c\n" * 6, ("1",), "d")]
    config = DecodingConfig(max_length_ratio=0.25, beam=beam)
    writer = _writer(corpus, **config.model_dump())
    _never_ending(writer, corpus)
    found: list[Generated] = []
    monkeypatch.setattr(writer._sequences, "texts", lambda rows: found.extend(rows) or [""] * len(rows))
    written(writer, pairs)
    # The longest first. With the end of the document before and behind it, the sides have two tokens more.
    sources = writer._sequences.written([(pair.source, pair.suffix) for pair in pairs[::-1]])
    limits = [math.ceil(0.25 * (source.num_tokens + 2)) + 16 for source in sources]
    assert min(limits) < 24 < max(limits)
    for limit, one in zip(limits, found, strict=True):
        assert one.forced
        assert 0 < len(one.tokens) <= min(24, limit)
    if beam == 1:
        assert len(found[0].tokens) > limits[1], "the longer one must need its limit, or this tests nothing"


def test_the_length_power_chooses_between_fillings(corpus: PreparedCorpus) -> None:
    """Without it the fewest tokens are likeliest; the higher it is, the more count."""
    pairs = hole_pairs(8)
    lengths = [
        sum(
            len(corpus.tokenizer.encode(text))
            for text in written(_writer(corpus, beam=beam, length_power=power), pairs)
        )
        for beam in (1, 3)
        for power in (0.0, 1.0, 2.0)
    ]
    for few, mean, many in (lengths[:3], lengths[3:]):
        assert few <= mean <= many
        assert few < many


@pytest.mark.parametrize("batch", [1, 64])
def test_equal_holes_are_drawn_each_by_itself(corpus: PreparedCorpus, batch: int) -> None:
    (pair,) = hole_pairs(1)
    texts = written(_writer(corpus, temperature=1.0, batch=batch), [pair] * 3)
    assert len(set(texts)) == 3
    assert written(_writer(corpus, temperature=1.0, batch=batch), [pair]) == texts[:1]
