"""The model against Hugging Face's XLNet on random weights: logits, loss, all gradients, memories.

Shapes: B lanes, L segment, M memory, P predicted, D model, V vocabulary.
"""

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from pretrain.hf.weights import to_xlnet
from pretrain.model.fused.attend import attend_fused
from pretrain.model.fused.operators import load_operators
from pretrain.model.segment_memory import SegmentMemory
from pretrain.model.transformer import TwoStreamTransformer
from tests.numerics.hugging_face_twins import (
    NO_LABEL,
    VOCAB,
    Case,
    as_mems,
    exact_sinusoids,
    random_memory,
    random_segment,
    twins,
)

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
"""Largest difference of any two numbers compared; in float32, where both are rounded, beside the largest of them."""

CASES = {
    "no memory": Case(),
    "memory empty": Case(memory=6),
    "memory partly filled": Case(memory=6, filled=2),
    "memory full": Case(memory=6, filled=6),
    "memory of one position": Case(memory=1, filled=1),
    "memory longer than the segment, partly filled": Case(length=5, memory=14, filled=7),
    "memory longer than the segment, full": Case(length=5, memory=14, filled=14),
    "all tokens predicted": Case(predicted=9),
    "all tokens predicted, with memory": Case(predicted=9, memory=4, filled=4),
    "one token predicted": Case(predicted=1),
    "one token in all, with memory": Case(length=1, predicted=1, memory=3, filled=3),
    "two tokens": Case(length=2, predicted=1),
    "padding": Case(padding=3),
    "padding and memory": Case(padding=4, memory=5, filled=3, documents=True),
    "documents": Case(documents=True),
    "documents and memory": Case(documents=True, memory=5, filled=3),
    "no segment encodings": Case(segment_encodings=False, documents=True, memory=5, filled=3),
    "untied embeddings": Case(tie_embeddings=False),
    "relu": Case(activation="relu"),
    "one head, one layer, one lane": Case(heads=1, layers=1, lanes=1, head_dim=6),
    "heads of odd size": Case(heads=2, head_dim=3, length=7),
    "more layers, lanes and heads": Case(
        lanes=3, length=17, predicted=6, layers=4, heads=4, ffn=40, memory=11, filled=8
    ),
    "a hundred tokens": Case(
        lanes=1, length=101, predicted=17, layers=3, heads=4, head_dim=16, ffn=96, memory=70, filled=70
    ),
    "three segments": Case(num_segments=3, memory=6, filled=0),
    "three segments, memory longer than them": Case(num_segments=3, length=5, memory=13, filled=2),
    "three segments with documents": Case(num_segments=3, memory=6, filled=3, documents=True),
}


def assert_equal(ours: Tensor, theirs: Tensor, what: str) -> None:
    assert ours.shape == theirs.shape, what
    if not ours.numel():
        return
    difference = (ours - theirs).abs().max().item()
    size = max(1.0, theirs.abs().max().item()) if theirs.dtype == torch.float32 else 1.0
    assert difference <= size * TOLERANCE[theirs.dtype], f"{what}: {difference:.3g}"


def assert_same_gradients(ours: TwoStreamTransformer, theirs: torch.nn.Module) -> None:
    gradients = {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in ours.named_parameters()
    }
    expected = to_xlnet(gradients, ours.config, VOCAB)
    named = dict(theirs.named_parameters())
    assert set(named) == set(expected)
    for name, parameter in named.items():
        if not ours.config.segment_encodings and name.endswith("seg_embed"):
            continue  # zeros that are no parameters here
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        assert_equal(expected[name], gradient, f"gradient of {name}")


def assert_same_memory(ours: SegmentMemory, theirs: tuple[Tensor, ...]) -> None:
    """Padding is remembered by both, as different things; nobody here sees it."""
    for number, (ours_BMD, theirs_MBD) in enumerate(zip(ours.layers_BMD, theirs, strict=True)):
        filled = len(theirs_MBD)
        real_BM = ours.group_BM[:, ours.memory_tokens - filled :] == 0
        kept_BMD = ours_BMD[:, ours.memory_tokens - filled :]
        assert_equal(kept_BMD[real_BM], theirs_MBD.transpose(0, 1)[real_BM], f"memory of layer {number}")


def compare(case: Case, seed: int, dtype: torch.dtype) -> None:
    ours, theirs = twins(case, seed, dtype)
    memory, filled = random_memory(case, ours, seed), case.filled
    mems = as_mems(memory, filled)
    our_loss, their_loss = torch.zeros((), dtype=dtype), torch.zeros((), dtype=dtype)
    for number in range(case.num_segments):
        segment = random_segment(case, 1000 * seed + number)
        labels_BP = segment.labels_BP(filled)
        assert (labels_BP != NO_LABEL).any()
        output = ours(*segment.for_ours(), memory)
        expected = theirs(**segment.for_theirs(dtype), mems=mems, labels=labels_BP, use_mems=case.memory > 0)
        sighted_BP = labels_BP != NO_LABEL
        assert_equal(output.logits_BPV[sighted_BP], expected.logits[sighted_BP], "logits")
        loss = functional.cross_entropy(output.logits_BPV.flatten(0, 1), labels_BP.flatten())
        assert_equal(loss, expected.loss, "loss")
        our_loss, their_loss = our_loss + loss, their_loss + expected.loss
        if case.memory:
            assert_same_memory(output.memory, expected.mems)
            # Hugging Face takes every remembered token for one of document 0.
            memory = replace(output.memory, document_BM=torch.zeros_like(output.memory.document_BM))
            mems, filled = expected.mems, len(expected.mems[0])
    our_loss.backward()
    their_loss.backward()
    assert_same_gradients(ours, theirs)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_float64_equals_hugging_face(name: str, seed: int) -> None:
    with exact_sinusoids():
        compare(CASES[name], seed, torch.float64)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any shape in which somebody sees something. What is padded is not remembered for another segment."""
    length, memory = draw(st.integers(1, 12)), draw(st.integers(0, 15))
    num_segments = draw(st.integers(1, 3))
    padding = draw(st.integers(0, length - 1)) if num_segments == 1 else 0
    filled = draw(st.integers(0, memory))
    most = length - padding - (1 if filled == 0 else 0)
    return Case(
        lanes=draw(st.integers(1, 3)),
        length=length,
        predicted=draw(st.integers(1, max(1, most))),
        layers=draw(st.integers(1, 3)),
        heads=draw(st.integers(1, 3)),
        head_dim=2 * draw(st.integers(1, 3)),
        ffn=draw(st.integers(1, 16)),
        memory=memory if most else max(1, memory),
        filled=filled if most else 1,
        padding=padding,
        documents=draw(st.booleans()),
        segment_encodings=draw(st.booleans()),
        tie_embeddings=draw(st.booleans()),
        activation=draw(st.sampled_from(["gelu", "relu"])),
        num_segments=num_segments,
    )


@given(case=cases(), seed=st.integers(0, 1000))
@settings(deadline=None, max_examples=40)
def test_any_shape_equals_hugging_face(case: Case, seed: int) -> None:
    with exact_sinusoids():
        compare(case, seed, torch.float64)


@pytest.fixture(params=["plain", "fused"])
def attention(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Attention in tensor operations, or in one pass in C++, which must then really be used."""
    if request.param == "plain":
        monkeypatch.setattr("pretrain.model.attention.fusable", lambda *_: False)
        yield
        return
    if reason := load_operators():
        pytest.skip(reason)
    with patch("pretrain.model.attention.attend_fused", wraps=attend_fused) as fused:
        yield
    assert fused.called


@pytest.mark.usefixtures("attention")
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_float32_equals_hugging_face(name: str, seed: int) -> None:
    compare(CASES[name], seed, torch.float32)
