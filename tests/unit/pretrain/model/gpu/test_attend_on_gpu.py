"""The kernels of a GPU, interpreted on the CPU, against the plainest attention in float64."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from pretrain.model.attention_scores import Distances, Queries, attend
from pretrain.model.fused.gpu.attend import attend_on_gpu
from pretrain.model.fused.gpu.dropout import kept_weights
from pretrain.model.layout import AttentionMask
from pretrain.model.positions import ShawLayer
from tests.unit.pretrain.model import fused_cases
from tests.unit.pretrain.model.fused_cases import (
    NAMES,
    Problem,
    Shape,
    assert_solved,
    make_problem,
    plainest,
    relative_error,
    solved,
)
from tests.unit.pretrain.model.gpu.interpreted import predictions_alone, tiles_of

BF16_AGAINST_PLAIN = 2.0
"""The output is rounded to bfloat16 before the backward pass sums its products with the gradient."""
TILES = [(16, 16), (16, 32), (32, 16), (32, 32), (16, 64)]

shapes = st.builds(
    Shape,
    heads=st.integers(1, 2),
    lanes=st.integers(1, 2),
    length=st.integers(1, 48),
    memory=st.integers(0, 24),
    predicted=st.integers(0, 24),
    head_dim=st.sampled_from([1, 8, 16, 24, 64]),
    gap=st.integers(0, 20),
    distances=st.booleans(),
    documents=st.booleans(),
    biases=st.booleans(),
)


@settings(max_examples=12)
@given(shape=shapes, tile=st.sampled_from(TILES), alone=st.booleans(), seed=st.integers(0, 1000))
@example(Shape(1, 2, 40, 20, 20, head_dim=24, gap=20), (16, 16), False, 0)  # more than two half bands
@example(
    Shape(2, 1, 60, 30, 30, head_dim=24, gap=9), (16, 32), False, 1
)  # two, one of them of the tile before
@example(Shape(1, 2, 60, 20, 24, head_dim=16, gap=16), (16, 32), True, 2)
@example(Shape(length=48, memory=16, predicted=16, head_dim=16, gap=17), (16, 32), False, 3)  # u = J
def test_values_and_gradients_equal_the_definition(
    shape: Shape, tile: tuple[int, int], alone: bool, seed: int
) -> None:
    problem = make_problem(shape, seed)
    if alone and shape.predicted:
        problem = predictions_alone(problem, shape.length)
    with tiles_of(*tile):
        found = solved(problem, torch.float32, attend_on_gpu)
    assert_solved(problem, found, solved(problem, torch.float64, plainest))


@pytest.mark.parametrize("name", NAMES[1:])
def test_the_tolerance_finds_an_input_that_is_off_by_a_thousandth(name: str) -> None:
    problem = make_problem(Shape(), 732)
    inputs = [
        each if each is None or one != name else each * 1.001
        for one, each in zip(NAMES[1:], problem.inputs, strict=True)
    ]
    found = solved(replace(problem, inputs=tuple(inputs)), torch.float32, attend_on_gpu)
    with pytest.raises(AssertionError, match="what rounding allows"):
        assert_solved(problem, found, solved(problem, torch.float64, plainest))


@pytest.mark.parametrize(
    "shape", [Shape(2, 2, 60, 30, 21, 32, gap=9), Shape(2, 2, 40, 0, 20, 64, documents=False)]
)
def test_bfloat16_is_no_worse_than_plain_bfloat16(shape: Shape) -> None:
    problem = make_problem(shape)
    reference, plain = solved(problem, torch.float64, plainest), solved(problem, torch.bfloat16, attend)
    with tiles_of(16, 32):
        found = solved(problem, torch.bfloat16, attend_on_gpu)
    for name, value, other, expected in zip(NAMES, found, plain, reference, strict=True):
        if value is not None and other is not None and expected is not None:
            limit = BF16_AGAINST_PLAIN * relative_error(other, expected)
            assert relative_error(value, expected) <= limit, name


DROPOUT = 0.3
SEED = 17


def _seeded_attend(*inputs: object) -> Tensor:
    torch.manual_seed(SEED)
    return attend_on_gpu(*inputs, dropout=DROPOUT)  # type: ignore[arg-type]


def test_dropout_drops_the_same_weights_forward_and_backward() -> None:
    problem = make_problem(Shape(2, 2, 50, 30, 21, 16, gap=9))

    def dropped(
        queries: Queries, key: Tensor, value: Tensor, distances: Distances, mask: AttentionMask
    ) -> Tensor:
        torch.manual_seed(SEED)
        seed = int(torch.randint(2**63 - 1, ()))
        weight = fused_cases._weights(fused_cases._scores(queries, key, distances, mask), mask)
        kept = kept_weights(seed, DROPOUT, *queries.query_NBQH.shape[:3], key.shape[2], key.device)
        return (weight * kept / (1 - DROPOUT)) @ value

    exact = solved(problem, torch.float64, dropped)
    undropped = solved(problem, torch.float64, plainest)
    with tiles_of(16, 32):
        found = solved(problem, torch.float32, _seeded_attend)
    for name, one, other, different in zip(NAMES, found, exact, undropped, strict=True):
        assert one is not None
        assert other is not None
        assert different is not None
        assert relative_error(one, other) < 1e-5, name
        assert relative_error(one, different) > 1e-2, name


@pytest.mark.parametrize("attention", [attend_on_gpu, _seeded_attend])
def test_a_repetition_has_the_same_bits(attention: object) -> None:
    problem = make_problem(Shape(2, 2, 50, 30, 21, 16, gap=9))
    with tiles_of(16, 32):
        first, second = (solved(problem, torch.float32, attention) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one is not None
        assert other is not None
        assert torch.equal(one, other)


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_dropout_keeps_the_share_of_weights_that_it_should(share: float) -> None:
    kept_NBQK = kept_weights(2**62 + 12345, share, 3, 4, 100, 200, torch.device("cpu")).double()
    expected = 1 - share

    def deviation(count: int) -> float:
        return float((share * expected / count) ** 0.5)

    assert abs(kept_NBQK.mean() - expected) < 5 * deviation(kept_NBQK.numel())
    for dims in ((0, 1, 2), (0, 1, 3), (2, 3)):
        means = kept_NBQK.mean(dim=dims)
        assert means.std() == pytest.approx(deviation(kept_NBQK.numel() // means.numel()), rel=0.5)
    other = kept_weights(2**62 + 12346, share, 3, 4, 100, 200, torch.device("cpu")).double()
    agreement = (kept_NBQK == other).double().mean()
    assert agreement == pytest.approx(expected**2 + share**2, abs=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_that_see_nothing_get_zeros_and_zero_gradients(dtype: torch.dtype) -> None:
    problem = make_problem(Shape(memory=0))
    mask = problem.mask
    nothing = AttentionMask(
        mask.position_BQ,
        torch.zeros_like(mask.bound_BQ),
        mask.group_BQ,
        mask.document_BQ,
        mask.keys,
        mask.span,
    )
    for each in solved(replace(problem, mask=nothing), dtype, attend_on_gpu):
        assert each is not None
        assert torch.equal(each, torch.zeros_like(each))


def test_shaw_s_keys_are_served() -> None:
    problem = make_problem(Shape(length=40, memory=20, head_dim=16, biases=False), 5)
    layer = ShawLayer(6, num_heads=2, head_dim=16).double()
    torch.nn.init.normal_(layer.key_CH, std=0.3)

    def gradient(dtype: torch.dtype, attention: object) -> Tensor:
        own = layer.to(dtype)
        own.zero_grad()
        query, _, _, document, key, value, _ = (None if x is None else x.to(dtype) for x in problem.inputs)
        assert query is not None
        queries = Queries(query, 0.25, None, None, document)
        distances = Distances(own.distance_keys(problem.mask.span, None), None)
        mixed = attention(queries, key, value, distances, problem.mask)  # type: ignore[operator]
        mixed.backward(problem.gradient_NBQH.to(dtype))
        assert own.key_CH.grad is not None
        return own.key_CH.grad.clone()

    exact = gradient(torch.float64, plainest)
    with tiles_of(16, 32):
        assert relative_error(gradient(torch.float32, attend_on_gpu), exact) < 1e-5


def test_hidden_keys_change_no_bit() -> None:
    problem = make_problem(Shape(length=40, memory=30, predicted=8, head_dim=16))
    *queries, key, value, table = problem.inputs
    assert key is not None
    assert value is not None
    other_key, other_value = key.clone(), value.clone()
    other_key[:, :, :15], other_value[:, :, :15] = 7.0, -3.0
    with tiles_of(16, 16):
        one, other = (
            solved(replace(problem, inputs=(*queries, *pair, table)), torch.float32, attend_on_gpu)
            for pair in ((key, value), (other_key, other_value))
        )
    for name, first, second in zip(NAMES, one, other, strict=True):
        assert first is not None
        assert second is not None
        assert torch.equal(first, second), name


def test_torch_compile_has_no_graph_break_at_the_kernels() -> None:
    problem: Problem = make_problem(Shape(length=20, memory=10, head_dim=16))
    compiled = torch.compile(partial(attend_on_gpu, dropout=0.0), fullgraph=True, backend="aot_eager")
    with tiles_of(16, 16):
        found, expected = (solved(problem, torch.float32, each) for each in (compiled, attend_on_gpu))
    for name, one, other in zip(NAMES, found, expected, strict=True):
        assert one is not None
        assert other is not None
        assert torch.equal(one, other), name
