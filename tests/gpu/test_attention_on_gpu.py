"""The attention kernels compute what the definition says, repeat their bits, hold no L x K numbers and never wait."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from torch import Tensor

from pretrain.model.attention_scores import Distances, Queries, attend
from pretrain.model.fused.gpu.attend import attend_on_gpu
from pretrain.model.fused.gpu.dropout import kept_weights
from pretrain.model.layout import UNFILLED_GROUP, AttentionMask
from tests.unit.pretrain.model import fused_cases
from tests.unit.pretrain.model.fused_cases import (
    NAMES,
    Problem,
    Shape,
    make_problem,
    plainest,
    relative_error,
    solved,
)

FP32_TOLERANCE = 1e-4
"""Products of float32 are made of three of TF32."""
BF16_AGAINST_PLAIN = 2.5
"""The output is rounded to bfloat16 before the backward pass sums its products with the gradient."""
SEED = 17
DOCUMENTS_AGAINST_PLAIN = 4.0
"""A document's score changes nothing for a row that sees one document: its gradient is the rounding of the output."""
INTERPRETED_SHARE = 8
"""Interpreted problems are shorter by this."""
MOST_GROWTH = 2.3
"""Of memory, for twice the length: linear, with what an allocator rounds."""

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature"),
]


@dataclass(frozen=True)
class Case:
    """A problem, and what `Shape` does not say of it."""

    shape: Shape
    filled_memory: str = "half"
    is_alone: bool = False
    """Predicted rows without content rows, as in the last layer."""
    dropout: float = 0.0


CASES = {
    "as in the recipes": Case(Shape(4, 2, 384, 256, 192, 64, gap=32)),
    "the last layer": Case(Shape(2, 2, 384, 256, 192, 64, gap=32), is_alone=True),
    "long": Case(Shape(2, 1, 1100, 500, 300, 64)),
    "no memory": Case(Shape(2, 2, 250, 0, 100, 64), filled_memory="all"),
    "empty memory": Case(Shape(2, 2, 200, 120, 100, 64), filled_memory="none"),
    "full memory": Case(Shape(2, 2, 200, 120, 100, 64), filled_memory="all"),
    "a gap of more than a tile": Case(Shape(2, 2, 250, 100, 100, 64, gap=300)),
    "dropout": Case(Shape(2, 2, 250, 100, 100, 64, gap=9), dropout=0.3),
    "no distances": Case(Shape(2, 2, 250, 100, 100, 64, distances=False)),
    "no documents and no biases": Case(Shape(2, 2, 250, 100, 100, 64, documents=False, biases=False)),
    "head dimension 16": Case(Shape(3, 2, 250, 100, 100, 16)),
    "head dimension 24": Case(Shape(2, 3, 250, 100, 100, 24)),
    "head dimension 32": Case(Shape(2, 2, 250, 100, 100, 32)),
    "head dimension 96": Case(Shape(2, 2, 250, 100, 100, 96)),
    "head dimension 128": Case(Shape(1, 2, 250, 100, 100, 128)),
    "one token": Case(Shape(1, 1, 1, 0, 1, 64)),
}


def problem_of(case: Case, device: torch.device) -> Problem:
    """The problem in float64, on a device; shorter where kernels are interpreted."""
    shape = case.shape
    if device.type == "cpu":
        shape = replace(
            shape,
            heads=1,
            length=-(-shape.length // INTERPRETED_SHARE),
            memory=shape.memory // INTERPRETED_SHARE,
            predicted=-(-shape.predicted // INTERPRETED_SHARE),
        )
    problem = make_problem(shape)
    filled = {"none": shape.memory, "half": shape.memory // 2, "all": 0}[case.filled_memory]
    keys, mask = problem.mask.keys, problem.mask
    group_BX = keys.group_BX.clone()
    group_BX[:, :filled] = UNFILLED_GROUP
    group_BX[:, filled : shape.memory] = 7
    keys = replace(keys, group_BX=group_BX)
    inputs, gradient_NBQH, first = problem.inputs, problem.gradient_NBQH, 0
    if case.is_alone:
        first = shape.length
        rows = [None if x is None else x[:, :, first:] for x in (inputs[0], inputs[3])]
        inputs = (rows[0], *inputs[1:3], rows[1], *inputs[4:])
    mask = AttentionMask(
        mask.position_BQ.to(device),
        mask.bound_BQ.to(device),
        mask.group_BQ.to(device),
        None if mask.document_BQ is None else mask.document_BQ.to(device),
        replace(
            keys,
            position_BX=keys.position_BX.to(device),
            rank_BX=keys.rank_BX.to(device),
            group_BX=keys.group_BX.to(device),
            document_BX=None if keys.document_BX is None else keys.document_BX.to(device),
        ),
        mask.span,
        mask.largest_gap_tokens,
    )
    return Problem(
        tuple(None if x is None else x.to(device) for x in inputs),
        gradient_NBQH[:, :, first:].to(device),
        mask.rows_from(first) if case.is_alone else mask,
    )


def by_kernels(*inputs: object, dropout: float = 0.0) -> Tensor:
    torch.manual_seed(SEED)
    return attend_on_gpu(*inputs, dropout=dropout)  # type: ignore[arg-type]


def with_dropout(
    attention: object,
    dropout: float,
    queries: Queries,
    key: Tensor,
    value: Tensor,
    distances: Distances,
    mask: AttentionMask,
) -> Tensor:
    """An attention with the dropout of the kernels, by way of its weights: values that are a unit matrix."""
    torch.manual_seed(SEED)
    seed = int(torch.randint(2**63 - 1, ()))
    unit = torch.eye(key.shape[2], dtype=key.dtype, device=key.device).expand(*key.shape[:2], -1, -1)
    weight = attention(queries, key, unit, distances, mask)  # type: ignore[operator]
    kept = kept_weights(seed, dropout, *weight.shape, key.device)
    return (weight * kept / (1 - dropout)) @ value


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_the_definition(
    name: str, dtype: torch.dtype, device: torch.device
) -> None:
    case = CASES[name]
    problem = problem_of(case, device)
    exact_way, plain_way = plainest, attend
    if case.dropout:
        exact_way, plain_way = (partial(with_dropout, way, case.dropout) for way in (plainest, attend))  # type: ignore[assignment]
    exact = solved(problem, torch.float64, exact_way)
    found = solved(problem, dtype, partial(by_kernels, dropout=case.dropout))
    plain = solved(problem, dtype, plain_way)
    for result, one, other, reference in zip(NAMES, found, plain, exact, strict=True):
        assert (one is None) == (reference is None), result
        if one is not None and other is not None and reference is not None:
            assert one.dtype == dtype
            limit = FP32_TOLERANCE
            if dtype == torch.bfloat16:
                most = DOCUMENTS_AGAINST_PLAIN if result == "document" else BF16_AGAINST_PLAIN
                limit = most * relative_error(other, reference)
            assert relative_error(one, reference) <= limit, result


@pytest.mark.parametrize("name", NAMES[1:])
def test_the_tolerance_finds_an_input_that_is_off_by_a_hundredth(name: str, device: torch.device) -> None:
    problem = problem_of(CASES["head dimension 32"], device)
    exact = solved(problem, torch.float64, plainest)
    inputs = [
        each if each is None or one != name else each * 1.01
        for one, each in zip(NAMES[1:], problem.inputs, strict=True)
    ]
    found = solved(replace(problem, inputs=tuple(inputs)), torch.float32, by_kernels)
    errors = [
        relative_error(one, reference)
        for one, reference in zip(found, exact, strict=True)
        if one is not None and reference is not None
    ]
    assert max(errors) > FP32_TOLERANCE


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_a_repetition_has_the_same_bits(dropout: float, dtype: torch.dtype, device: torch.device) -> None:
    problem = problem_of(CASES["as in the recipes"], device)
    first, second = (solved(problem, dtype, partial(by_kernels, dropout=dropout)) for _ in range(2))
    for name, one, other in zip(NAMES, first, second, strict=True):
        assert one is not None
        assert other is not None
        assert torch.equal(one, other), name


def test_dropout_drops_other_weights_at_another_seed(device: torch.device) -> None:
    problem = problem_of(CASES["dropout"], device)
    first = solved(problem, torch.float32, partial(by_kernels, dropout=0.3))
    torch.manual_seed(SEED + 1)
    other = solved(problem, torch.float32, partial(attend_on_gpu, dropout=0.3))
    assert first[0] is not None
    assert other[0] is not None
    assert relative_error(first[0], other[0].double()) > 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_rows_that_see_nothing_get_zeros(dtype: torch.dtype, device: torch.device) -> None:
    problem = problem_of(CASES["no memory"], device)
    mask = problem.mask
    nothing = AttentionMask(
        mask.position_BQ,
        torch.zeros_like(mask.bound_BQ),
        mask.group_BQ,
        mask.document_BQ,
        mask.keys,
        mask.span,
        mask.largest_gap_tokens,
    )
    for each in solved(replace(problem, mask=nothing), dtype, by_kernels):
        assert each is not None
        assert torch.equal(each, torch.zeros_like(each))


def _peak_bytes(length: int, device: torch.device, attention: object) -> int:
    problem = problem_of(Case(Shape(8, 1, length, 0, length // 2, 64, documents=False)), device)
    inputs = [None if x is None else x.to(torch.bfloat16).requires_grad_() for x in problem.inputs]
    problem = Problem(tuple(inputs), problem.gradient_NBQH.to(torch.bfloat16), problem.mask)
    solved(problem, torch.bfloat16, attention)  # tables are made, kernels are compiled
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    solved(problem, torch.bfloat16, attention)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def test_memory_grows_with_the_length_and_not_with_its_square(device: torch.device) -> None:
    if device.type == "cpu":
        pytest.skip("a GPU's allocator is measured")
    lengths = (1024, 2048, 4096)
    peaks = [_peak_bytes(length, device, by_kernels) for length in lengths]
    for one, twice in zip(peaks, peaks[1:], strict=False):
        assert twice <= MOST_GROWTH * one
    heads, rows, keys = 8, lengths[-1] * 3 // 2, lengths[-1]
    scores_bytes = heads * rows * keys * 2
    assert peaks[-1] < scores_bytes / 2
    assert _peak_bytes(lengths[-1], device, attend) > scores_bytes, "the plain way, which has them, shows it"


@contextmanager
def no_waits(device: torch.device) -> Iterator[None]:
    """Any wait of the host for a GPU is an error in this block; where kernels are interpreted nothing is checked."""
    if device.type == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if device.type == "cuda":
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_forward_and_backward_pass_never_wait_for_the_gpu(dropout: float, device: torch.device) -> None:
    """Nor do the tables; kernels are compiled before."""
    problem = problem_of(CASES["as in the recipes"], device)
    attention = partial(attend_on_gpu, dropout=dropout)
    inputs = [None if x is None else x.float().requires_grad_() for x in problem.inputs]
    gradient = problem.gradient_NBQH.float()
    *_, key, value, table = inputs
    assert key is not None
    assert value is not None
    for is_warm in (False, True):
        problem.mask.derived.clear()
        queries = fused_cases.queries_of(inputs)
        with no_waits(device) if is_warm else no_waits(torch.device("cpu")):
            for _ in range(2):
                attention(queries, key, value, Distances(table, None), problem.mask).backward(gradient)
    assert key.grad is not None
    assert torch.isfinite(key.grad).all()
