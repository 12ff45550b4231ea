"""Documents before a text with a hole count as the files of one repository do in training."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.data.blocks import OpenBlock
from pretrain.inference.decoder import Decoder
from pretrain.inference.earlier_documents import with_documents_before
from pretrain.inference.history import HistoryCache
from pretrain.inference.hole import Hole, Holes, Sides
from pretrain.model.config import PositionsConfig
from pretrain.model.segment_memory import SegmentMemory
from pretrain.model.transformer import TwoStreamTransformer
from tests.numerics.decoding_ways import (
    EOD,
    FP64_TOLERANCE,
    SEGMENT,
    behind_eod,
    random_tokens,
    without_cache,
)
from tests.small_models import ABSOLUTE, RELATIVE, VOCAB, small_model

PLACE = 4
HOLE = random_tokens(40, PLACE)


class ByteTokenizer:
    """A token is a byte."""

    eod_id = EOD
    token_bytes = np.ones(256, dtype=np.int64)

    def encode_bytes(self, data: bytes) -> NDArray[np.uint8]:
        return np.frombuffer(data, dtype=np.uint8)


def text_of(seed: int, length: int) -> NDArray[np.int64]:
    return random_tokens(seed, length) % (VOCAB - 2) + 2


def document(seed: int, length: int) -> bytes:
    return bytes(text_of(seed, length).tolist())


def sides_of(decoder: Decoder, documents: list[bytes], before: int, after: int) -> Sides:
    own = Sides(behind_eod(text_of(1, before)), np.append(text_of(2, after), EOD))
    return with_documents_before(decoder, ByteTokenizer(), own, documents)  # type: ignore[arg-type]


def filled(decoder: Decoder, sides: Sides, cache: HistoryCache | None = None) -> Tensor:
    """Logits [T, V] of the hole's tokens."""
    text = Holes(decoder, [Hole(sides, [PLACE])], cache=cache)
    return torch.cat([text.first()] + [text.following(torch.tensor([int(token)])) for token in HOLE[:-1]])


def by_whole_passes(model: TwoStreamTransformer, sides: Sides, num_shown: int) -> Tensor:
    """The same by whole passes: the stream of documents in segments, the last one with the hole."""
    assert sides.before_T is not None
    numbers = (1 + sides.before_T).tolist()
    memory: SegmentMemory | None = None
    history = len(sides.prefix) - num_shown
    for first in range(0, history, SEGMENT):
        end = min(first + SEGMENT, history)
        length = end - first
        _, memory = without_cache(
            model,
            sides.prefix[first:end],
            [0] * length,
            list(range(length)),
            [(0, 0)],
            memory,
            numbers[first:end],
        )
    room = SEGMENT - PLACE - num_shown
    suffix = sides.suffix[:room]
    tokens = np.concatenate([sides.prefix[history:], HOLE, suffix])
    rank = [0] * num_shown + list(range(1, PLACE + 1)) + [0] * len(suffix)
    wanted, _ = without_cache(
        model,
        tokens,
        rank,
        list(range(len(tokens))),
        [(num_shown + number, 1 + number) for number in range(PLACE)],
        memory,
        [*numbers[history:], *[1] * (PLACE + len(suffix))],
    )
    return wanted


CASES = [
    # documents, own tokens before and behind the hole, tokens of the prefix in its segment
    ([10, 15], 3, 2, 5),
    ([10, 15], 30, 20, 4),
    ([3, 1, 2], 2, 1, 6),
    ([40], 1, 30, 2),
    ([1], 0, 1, 3),
]


@pytest.mark.parametrize("positions", RELATIVE, ids=lambda one: one.kind)
@pytest.mark.parametrize("encodings", [True, False])
@pytest.mark.parametrize(("lengths", "before", "after", "num_shown"), CASES, ids=range(len(CASES)))
def test_logits_are_those_of_whole_passes_over_the_stream_of_documents(
    positions: PositionsConfig, encodings: bool, lengths: list[int], before: int, after: int, num_shown: int
) -> None:
    model = small_model(positions, segment_encodings=encodings, memory_tokens=20)
    decoder = Decoder(model, SEGMENT)
    documents = [document(50 + number, length) for number, length in enumerate(lengths)]
    sides = sides_of(decoder, documents, before, after)
    found_TV = filled(decoder, sides)
    wanted_TV = by_whole_passes(model, sides, num_shown)
    torch.testing.assert_close(found_TV, wanted_TV, rtol=0, atol=FP64_TOLERANCE)
    alone_TV = filled(decoder, sides_of(decoder, [], before, after))
    if before < 2 * SEGMENT:
        assert (found_TV - alone_TV).abs().max() > 1e-3


def test_documents_have_the_numbers_and_ends_of_training() -> None:
    decoder = Decoder(small_model(), SEGMENT)
    texts = [document(seed, length) for seed, length in ((1, 4), (2, 1), (3, 6))]
    sides = sides_of(decoder, texts, 5, 3)
    own = [*text_of(1, 5), *text_of(2, 3)]
    stream = np.concatenate([*([*text, EOD] for text in texts), own, [EOD]]).astype(np.uint16)
    bounds = np.cumsum([0, *(len(text) + 1 for text in texts), len(own) + 1])
    _, number_T = OpenBlock(stream, bounds, np.ones(4, dtype=np.int64), None).numbers(0, len(stream))
    assert [*sides.prefix[1:], *sides.suffix] == stream.tolist()
    assert sides.before_T is not None
    assert (4 - sides.before_T[1:]).tolist() == number_T[: len(sides.prefix) - 1].tolist()
    assert sides.before_T[0] == 4


def test_the_cache_serves_texts_with_more_documents_behind_the_same_beginning() -> None:
    decoder = Decoder(small_model(segment_encodings=True, memory_tokens=20), SEGMENT)
    texts = [document(seed, 25) for seed in (1, 2, 3)]
    cache = HistoryCache(1 << 30)
    num_reused = []
    for number in (1, 2, 3):
        sides = sides_of(decoder, texts[:number], 4, 4)
        before = cache.num_reused
        found_TV = filled(decoder, sides, cache)
        torch.testing.assert_close(found_TV, filled(decoder, sides), rtol=0, atol=FP64_TOLERANCE)
        num_reused.append(cache.num_reused - before)
    assert num_reused == [0, 2 * SEGMENT, 4 * SEGMENT]


def test_documents_out_of_reach_are_left_out_and_change_nothing() -> None:
    decoder = Decoder(small_model(segment_encodings=True), SEGMENT)
    reach = (decoder.reach_segments + 1) * SEGMENT
    near = document(1, 2 * reach)
    kept = sides_of(decoder, [document(2, 9), near], 3, 3)
    assert len(kept.prefix) == 1 + reach + 1 + 3
    with_one = filled(decoder, kept)
    far = Sides(
        np.concatenate([behind_eod(text_of(2, SEGMENT - 1)), kept.prefix]),
        kept.suffix,
        before_T=np.concatenate([np.full(SEGMENT, 3), kept.before_T]),  # type: ignore[list-item]
    )
    torch.testing.assert_close(filled(decoder, far), with_one, rtol=0, atol=FP64_TOLERANCE)


def test_a_short_text_keeps_all_that_is_behind_the_hole() -> None:
    decoder = Decoder(small_model(memory_tokens=20), SEGMENT)
    hole = Hole(sides_of(decoder, [document(1, 50)], 1, 5), [PLACE])
    shown = hole.visible_sides(SEGMENT)
    assert (len(shown.prefix), len(shown.suffix)) == (2, 6)


@pytest.mark.parametrize("positions", [*ABSOLUTE, RELATIVE[0]], ids=lambda one: one.kind)
def test_a_model_without_memory_gets_no_documents(positions: PositionsConfig) -> None:
    decoder = Decoder(small_model(positions, memory_tokens=0), SEGMENT)
    sides = sides_of(decoder, [document(1, 50)], 3, 3)
    assert len(sides.prefix) == 4
