"""Decoding as on a GPU: kernels that Triton interprets here, passes on memory that stays in place.

A CUDA graph needs a GPU (`tests/gpu/test_generation_on_gpu.py`); here the recorded body is called again instead, and
nothing in it may wait for a number.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pretrain.inference import layer, session
from pretrain.inference.completion import complete_by_beam, complete_tokens
from pretrain.inference.gpu import static_passes
from pretrain.inference.gpu.self_check import deviation
from pretrain.inference.sampling import GREEDY, Sampling
from pretrain.inference.session import DecodingSession
from pretrain.inference.token_rules import TokenRules
from tests.unit.pretrain.inference.gpu.decoders import (
    POSITIONS,
    SEGMENT,
    VOCABULARY,
    called_again,
    draw_prompts,
    make_decoder,
)

TOLERANCE = 2e-5


@pytest.fixture
def as_on_a_gpu() -> Iterator[list[int]]:
    """Sessions use static passes within the test; yields a list of one entry for each recorded pass."""
    recorded: list[int] = []

    def record(body: Callable[[], Tensor]) -> Callable[[], Tensor]:
        recorded.append(1)
        return called_again(body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "can_record", lambda device: True)
        patch.setattr(static_passes, "record", record)
        patch.setattr(static_passes, "_COLUMNS", 16)
        yield recorded


@pytest.mark.parametrize("positions", POSITIONS)
def test_completions_are_those_of_the_plain_passes(positions: str, as_on_a_gpu: list[int]) -> None:
    """Over several segments where the positions allow it; lanes that end are taken out."""
    decoder = make_decoder(positions)
    num_new = 9 if positions.startswith("absolute") else 30
    prompts = draw_prompts([5, 9, 12])
    rules = TokenRules(end=3)
    found = complete_tokens(decoder, prompts, num_new, Sampling(temperature=1.0), rules, num_samples=2)
    assert as_on_a_gpu
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "can_record", lambda device: False)
        expected = complete_tokens(decoder, prompts, num_new, Sampling(temperature=1.0), rules, num_samples=2)
    assert [one.tokens for one in found] == [one.tokens for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.log_likelihood == pytest.approx(other.log_likelihood, abs=1e-3)


def test_completions_by_the_kernels_are_those_of_the_plain_passes(
    as_on_a_gpu: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, prompts = make_decoder("transformer_xl"), draw_prompts([5, 9])
    monkeypatch.setattr(session, "can_record", lambda device: False)
    expected = complete_tokens(decoder, prompts, 7, GREEDY, TokenRules())
    monkeypatch.setattr(session, "can_record", lambda device: True)
    monkeypatch.setattr(layer, "runs_few_rows_kernels", lambda rows: True)
    found = complete_tokens(decoder, prompts, 7, GREEDY, TokenRules())
    assert as_on_a_gpu
    assert [one.tokens for one in found] == [one.tokens for one in expected]


def test_beams_are_those_of_the_plain_passes(as_on_a_gpu: list[int]) -> None:
    decoder, prompts = make_decoder("transformer_xl"), draw_prompts([7, 7])
    found = complete_by_beam(decoder, prompts, 8, 3, TokenRules())
    assert as_on_a_gpu
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "can_record", lambda device: False)
        expected = complete_by_beam(decoder, prompts, 8, 3, TokenRules())
    assert [[one.tokens for one in beam] for beam in found] == [
        [one.tokens for one in beam] for beam in expected
    ]


@settings(max_examples=12, deadline=None)
@given(
    positions=st.sampled_from(POSITIONS),
    documents=st.booleans(),
    lanes=st.integers(1, 3),
    shapes=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=3),
    seed=st.integers(0, 100),
    by_kernels=st.sampled_from([False, False, False, True]),
)
def test_passes_in_any_columns_are_the_plain_ones(
    positions: str, documents: bool, lanes: int, shapes: list[tuple[int, int]], seed: int, by_kernels: bool
) -> None:
    """Each shape of pass comes four times: twice before it is recorded, twice recorded."""
    decoder = make_decoder(positions, documents)
    draw = torch.Generator().manual_seed(seed)
    columns = torch.stack([torch.randperm(SEGMENT * 2, generator=draw) for _ in range(lanes)])
    context = _context(lanes, draw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(static_passes, "record", called_again)
        patch.setattr(static_passes, "_COLUMNS", 16)
        results = []
        for is_static in (True, False):
            patch.setattr(session, "can_record", lambda device, is_static=is_static: is_static)
            uses_kernels = is_static and by_kernels
            patch.setattr(layer, "runs_few_rows_kernels", lambda rows, uses=uses_kernels: uses)
            random = torch.Generator().manual_seed(seed)
            one = DecodingSession(decoder, lanes, SEGMENT * 2 + 12)
            one.encode(context)
            one.num_columns = SEGMENT * 2
            logits, written = [], 0
            for num_content, num_predicted in [shape for shape in shapes for _ in range(4)]:
                ranks = torch.randint(3, (lanes, num_content + num_predicted), generator=random)
                tokens = torch.randint(VOCABULARY, (lanes, num_content), generator=random)
                logits.append(
                    one.step(
                        tokens,
                        columns[:, written : written + num_content],
                        ranks[:, :num_content],
                        columns[:, written + num_content : written + num_content + num_predicted],
                        ranks[:, num_content:],
                    )
                )
                written += num_content
            results.append(logits)
    for found, expected in zip(*results, strict=True):
        assert (found - expected).abs().max() < TOLERANCE * max(1.0, float(expected.abs().max()))


def _context(lanes: int, draw: torch.Generator) -> Any:
    from pretrain.inference.context import Context

    length = 6
    return Context(
        torch.randint(VOCABULARY, (lanes, length), generator=draw),
        torch.rand(lanes, length, generator=draw) < 0.8,
        (torch.arange(length) < 2).expand(lanes, -1),
    )


def test_a_pass_is_recorded_once_for_256_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[int] = []
    monkeypatch.setattr(session, "can_record", lambda device: True)
    monkeypatch.setattr(static_passes, "record", lambda body: recorded.append(1) or called_again(body))  # type: ignore[func-returns-value]
    decoder = make_decoder("transformer_xl")
    decoder.segment_tokens = 700
    complete_tokens(decoder, draw_prompts([200]), 400, GREEDY, TokenRules())
    # 200 to 256 columns, to 512, to 600 that the session has.
    assert len(recorded) == 3


def test_where_recording_fails_passes_are_made_one_by_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(body: Callable[[], Tensor]) -> Callable[[], Tensor]:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore")

    decoder, prompts = make_decoder("transformer_xl"), draw_prompts([5])
    expected = complete_tokens(decoder, prompts, 12, GREEDY, TokenRules())
    monkeypatch.setattr(session, "can_record", lambda device: True)
    monkeypatch.setattr(static_passes, "record", fail)
    found = complete_tokens(decoder, prompts, 12, GREEDY, TokenRules())
    assert [one.tokens for one in found] == [one.tokens for one in expected]
    assert [record.message for record in caplog.records] == [
        "generation takes more time: its passes cannot be recorded (CUDA error: operation not permitted when stream is "
        "capturing)"
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("head_dim", [16, 48, 64, 80, 128])
def test_attention_of_few_rows_is_the_plain_one(head_dim: int, dtype: torch.dtype) -> None:
    assert deviation(torch.device("cpu"), dtype, head_dim) == ""
