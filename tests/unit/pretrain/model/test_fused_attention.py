"""The fused attention against the plainest one in float64, and what it promises beside the numbers."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pretrain.model.attention_scores import Distances, Queries, attend
from pretrain.model.fused.attend import attend_fused, fusable
from pretrain.model.fused.operators import load_operators
from pretrain.model.layout import AttentionMask, DistanceSpan
from tests.unit.pretrain.model.fused_cases import (
    NAMES,
    Shape,
    assert_solved,
    make_problem,
    plainest,
    queries_of,
    relative_error,
    solved,
)

BF16_AGAINST_PLAIN = 1.1
TYPES = [torch.float32, torch.bfloat16]


@pytest.fixture(autouse=True, scope="module")
def _operators() -> None:
    assert load_operators() is None


shapes = st.builds(
    Shape,
    heads=st.integers(1, 3),
    lanes=st.integers(1, 3),
    length=st.integers(1, 70),
    memory=st.integers(0, 40),
    predicted=st.integers(0, 40),
    head_dim=st.sampled_from([1, 2, 5, 8, 16, 24, 64]),
    gap=st.integers(0, 20),
    distances=st.booleans(),
    documents=st.booleans(),
    biases=st.booleans(),
)


ONE_LANE = Shape(1, 1, 36, 40, 17, 1, 19)


@settings(max_examples=60, deadline=None)
@given(shape=shapes, seed=st.integers(0, 1000))
@example(shape=replace(ONE_LANE, distances=False, documents=False), seed=732)
def test_float32_results_and_gradients_equal_the_definition(shape: Shape, seed: int) -> None:
    """In the example the gradient of the content bias cancels: its terms come to 144,000 times as much."""
    problem = make_problem(shape, seed)
    assert_solved(problem, solved(problem, torch.float32), solved(problem, torch.float64, plainest))


@pytest.mark.parametrize("shape", [ONE_LANE, Shape()])
@pytest.mark.parametrize("name", NAMES[1:])
def test_the_tolerance_finds_an_input_that_is_off_by_a_thousandth(name: str, shape: Shape) -> None:
    problem = make_problem(shape, 732)
    exact = solved(problem, torch.float64, plainest)
    inputs = [
        each if each is None or one != name else each * 1.001
        for one, each in zip(NAMES[1:], problem.inputs, strict=True)
    ]
    found = solved(replace(problem, inputs=tuple(inputs)), torch.float32)
    with pytest.raises(AssertionError, match="what rounding allows"):
        assert_solved(problem, found, exact)


@pytest.mark.parametrize("shape", [ONE_LANE, Shape()])
@pytest.mark.parametrize("name", ["content bias", "distance bias", "value", "distance keys"])
def test_the_tolerance_finds_a_row_that_is_missing_in_a_sum_over_rows(name: str, shape: Shape) -> None:
    problem = make_problem(shape, 732)
    exact, found = solved(problem, torch.float64, plainest), solved(problem, torch.float32)
    gradient_NBQH = problem.gradient_NBQH.clone()
    gradient_NBQH[0, 0, problem.mask.bound_BQ[0].argmax()] = 0.0
    index = NAMES.index(name)
    found[index] = solved(replace(problem, gradient_NBQH=gradient_NBQH), torch.float32)[index]
    with pytest.raises(AssertionError, match=name):
        assert_solved(problem, found, exact)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(4, 3, 64, 48, 11, 64),
        Shape(2, 2, 150, 0, 75, 32, documents=False),
        Shape(2, 3, 33, 70, 5, 16, gap=6, distances=False),
        Shape(3, 4, 40, 20, 40, 10),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_bfloat16_is_no_worse_than_plain_bfloat16(shape: Shape, seed: int) -> None:
    problem = make_problem(shape, seed)
    reference = solved(problem, torch.float64, plainest)
    plain = solved(problem, torch.bfloat16, attend)
    for name, value, other, expected in zip(
        NAMES, solved(problem, torch.bfloat16), plain, reference, strict=True
    ):
        if value is not None and other is not None and expected is not None:
            limit = BF16_AGAINST_PLAIN * relative_error(other, expected)
            assert relative_error(value, expected) <= limit, name


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_that_see_nothing_get_zeros_and_finite_gradients(dtype: torch.dtype) -> None:
    problem = make_problem(Shape(memory=0))
    nothing = AttentionMask(
        problem.mask.position_BQ,
        torch.zeros_like(problem.mask.bound_BQ),
        problem.mask.group_BQ,
        problem.mask.document_BQ,
        problem.mask.keys,
        problem.mask.span,
    )
    mixed, *gradients = solved(replace(problem, mask=nothing), dtype)
    assert mixed is not None
    assert torch.equal(mixed, torch.zeros_like(mixed))
    assert all(torch.equal(gradient, torch.zeros_like(gradient)) for gradient in gradients)


@pytest.mark.parametrize("dtype", TYPES)
def test_what_is_hidden_changes_no_bit_be_it_nan(dtype: torch.dtype) -> None:
    shape = Shape(length=40, memory=30, predicted=8, head_dim=16)
    problem = make_problem(shape)
    unfilled = shape.memory // 2
    *queries, key, value, table = problem.inputs
    assert key is not None
    key = key.clone()
    key[:, :, :unfilled] = torch.nan
    spoiled = replace(problem, inputs=(*queries, key, value, table))
    mixed, spoiled_mixed = (solved(each, dtype)[0] for each in (problem, spoiled))
    assert mixed is not None
    assert spoiled_mixed is not None
    assert torch.equal(mixed, spoiled_mixed)


@pytest.mark.parametrize("dtype", TYPES)
def test_nan_in_a_visible_score_is_not_swallowed(dtype: torch.dtype) -> None:
    problem = make_problem(Shape(length=20, memory=20))
    query, *others = problem.inputs
    assert query is not None
    query = query.clone()
    query[1, 0, 3] = torch.nan
    mixed = solved(replace(problem, inputs=(query, *others)), dtype)[0]
    assert mixed is not None
    assert mixed[1, 0, 3].isnan().all()
    assert not mixed[0].isnan().any()


def test_distances_beyond_the_table_share_its_ends() -> None:
    problem = make_problem(Shape(length=30, memory=10))
    mask = problem.mask
    short = AttentionMask(
        mask.position_BQ,
        mask.bound_BQ,
        mask.group_BQ,
        mask.document_BQ,
        mask.keys,
        DistanceSpan(low=-3, high=4),
    )
    *inputs, table = problem.inputs
    assert table is not None
    clipped = replace(problem, mask=short, inputs=(*inputs, table[:, :8]))
    assert_solved(clipped, solved(clipped, torch.float32), solved(clipped, torch.float64, plainest))


def test_keys_may_stand_in_any_order() -> None:
    problem = make_problem(Shape(length=30, memory=10))
    mask, order = problem.mask, torch.randperm(40, generator=torch.Generator().manual_seed(1))
    *queries, key, value, table = problem.inputs
    assert key is not None
    assert value is not None
    keys = mask.keys.at(order.expand(2, -1))
    shuffled = AttentionMask(
        mask.position_BQ, mask.bound_BQ, mask.group_BQ, mask.document_BQ, keys, mask.span
    )
    inputs = (*queries, key[:, :, order], value[:, :, order], table)
    exact = [
        each[:, :, order] if each is not None and name in ("key", "value") else each
        for name, each in zip(NAMES, solved(problem, torch.float64, plainest), strict=True)
    ]
    moved = replace(problem, mask=shuffled, inputs=inputs)
    assert_solved(moved, solved(moved, torch.float32), exact)


def _equal(one: list[Tensor | None], other: list[Tensor | None]) -> bool:
    return all(
        a is b or (a is not None and b is not None and torch.equal(a, b))
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("dtype", TYPES)
def test_bits_depend_neither_on_the_run_nor_on_the_threads(dtype: torch.dtype) -> None:
    problem = make_problem(Shape(4, 3, 70, 30, 20, 32))
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3, 1):
            torch.set_num_threads(threads)
            results.append(solved(problem, dtype))
    finally:
        torch.set_num_threads(before)
    assert all(_equal(results[0], result) for result in results[1:])


@pytest.mark.parametrize("dtype", TYPES)
def test_a_row_depends_on_no_other_lane_and_no_other_row(dtype: torch.dtype) -> None:
    problem = make_problem(Shape(2, 3, 70, 30, 20, 32))
    inputs = [None if each is None else each.to(dtype) for each in problem.inputs]
    *_, key, value, table = inputs
    assert key is not None
    assert value is not None
    first = 41
    queries = queries_of(inputs)
    assert queries.document_NBQ2 is not None
    later = replace(
        queries,
        query_NBQH=queries.query_NBQH[:, :, first:],
        document_NBQ2=queries.document_NBQ2[:, :, first:],
    )
    whole = attend_fused(queries, key, value, Distances(table, None), problem.mask)
    part = attend_fused(later, key, value, Distances(table, None), problem.mask.rows_from(first))
    assert torch.equal(whole[:, :, first:], part)


@pytest.mark.parametrize("dtype", TYPES)
def test_heads_may_lie_in_memory_in_any_way(dtype: torch.dtype) -> None:
    problem = make_problem(Shape(2, 3, 20, 10, 5, 16))

    def turned(each: Tensor | None) -> Tensor | None:
        return None if each is None else each.to(dtype).transpose(0, -2).contiguous().transpose(0, -2)

    def attended(inputs: list[Tensor | None]) -> Tensor:
        *_, key, value, table = inputs
        assert key is not None
        assert value is not None
        return attend_fused(queries_of(inputs), key, value, Distances(table, None), problem.mask)

    plain = attended([None if each is None else each.to(dtype) for each in problem.inputs])
    assert torch.equal(attended([turned(each) for each in problem.inputs]), plain)


OTHER_PRODUCTS = """
import torch
from pretrain.model.attention_scores import Distances, Queries
from pretrain.model.fused.attend import attend_fused
from pretrain.model.fused.operators import load_operators
from tests.unit.pretrain.model.fused_cases import Shape, make_problem, queries_of
assert load_operators() is None
torch.set_num_threads(1)
problem = make_problem(Shape(1, 1, 64, 0, 0, 64, distances=False, documents=False))
inputs = [None if each is None else each.bfloat16() for each in problem.inputs]
def attended():
    return attend_fused(queries_of(inputs), inputs[-3], inputs[-2], Distances(None, None), problem.mask)
before = attended()
for size in (16, 64, 256):
    torch.ones(size, size, dtype=torch.bfloat16) @ torch.ones(size, size, dtype=torch.bfloat16)
    assert torch.equal(attended(), before)
"""


def test_other_products_of_the_thread_between_two_of_one_shape_disturb_nothing() -> None:
    """On processors with tiles (AMX) it died of an illegal instruction: 64 keys, heads of 64, short texts."""
    finished = subprocess.run([sys.executable, "-c", OTHER_PRODUCTS], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr


def test_without_gradients_and_with_checkpointing_it_is_the_same() -> None:
    problem = make_problem(Shape(4, 2, 40, 30, 9, 16))
    expected = solved(problem, torch.float32)

    def checkpointed(*arguments: object) -> Tensor:
        result: Tensor = checkpoint(attend_fused, *arguments, use_reentrant=False)
        return result

    assert _equal(solved(problem, torch.float32, checkpointed), expected)
    inputs = [None if each is None else each.float() for each in problem.inputs]
    *_, key, value, table = inputs
    assert key is not None
    assert value is not None
    with torch.inference_mode():
        mixed = attend_fused(queries_of(inputs), key, value, Distances(table, None), problem.mask)
    assert expected[0] is not None
    assert torch.equal(mixed, expected[0])


def test_what_it_cannot_do_it_leaves_to_the_plain_attention() -> None:
    heads = torch.zeros(2, 1, 4, 8)
    table = torch.zeros(2, 5, 8)
    plain = Distances(None, None)
    queries = Queries(heads, 1.0, None, None, None)
    assert fusable(queries, Distances(table, None), dropout=0.0)
    assert not fusable(queries, plain, dropout=0.1)
    assert not fusable(queries, Distances(table, table[0]), dropout=0.0)
    for other in (heads.double(), heads.half(), heads.bfloat16()[..., :7], heads.to("meta")):
        assert not fusable(replace(queries, query_NBQH=other), plain, dropout=0.0)
    narrow = replace(queries, query_NBQH=heads.bfloat16())
    assert fusable(narrow, plain, dropout=0.0)
    assert not fusable(narrow, Distances(table, None), dropout=0.0)
    assert not fusable(replace(narrow, content_bias_NH=heads[:, 0, 0]), plain, dropout=0.0)


def test_inputs_that_do_not_fit_each_other_are_refused() -> None:
    problem = make_problem(Shape())
    inputs = [None if each is None else each.float() for each in problem.inputs]
    *_, key, value, table = inputs
    assert key is not None
    assert value is not None
    queries = queries_of(inputs)
    with pytest.raises(RuntimeError, match="heads of another shape"):
        attend_fused(queries, key, value[:, :, :-1], Distances(table, None), problem.mask)
    with pytest.raises(RuntimeError, match="of another shape"):
        attend_fused(queries, key, value, Distances(table, None), problem.mask.rows_from(1))
    with pytest.raises(RuntimeError, match="heads of another shape or type"):
        attend_fused(queries, key.bfloat16(), value, Distances(table, None), problem.mask)
    narrow = torch.zeros(2, 7)
    with pytest.raises(RuntimeError, match="a bias of another shape"):
        attend_fused(
            replace(queries, content_bias_NH=narrow), key, value, Distances(table, None), problem.mask
        )
