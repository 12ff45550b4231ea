"""The compiled pass through a layer against the plain one."""

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pretrain.inference.fused_layers import FusedLayers
from pretrain.inference.layer import DecodingLayer, LayerCache, attention_dtype
from pretrain.inference.linear import MAX_FEW_ROWS
from pretrain.inference.pass_layout import PassLayout
from pretrain.model.block import Block
from pretrain.model.config import (
    AbsoluteSinusoidalPositions,
    ModelConfig,
    PositionsConfig,
    RotaryPositions,
    ShawPositions,
    TransformerXLPositions,
)
from pretrain.model.fused.operators import load_operators
from pretrain.model.layout import DistanceSpan
from pretrain.model.positions import sinusoid_table

FP32_TOLERANCE = 1e-5
BF16_AGAINST_PLAIN = 1.1


@pytest.fixture(autouse=True, scope="module")
def _operators() -> None:
    assert load_operators() is None


@dataclass(frozen=True)
class Case:
    """A layer and a pass through it."""

    heads: int = 2
    head_dim: int = 16
    model_dim: int = 32
    ffn_dim: int = 64
    norm: str = "post"
    activation: str = "gelu"
    positions: PositionsConfig = TransformerXLPositions()
    lanes: int = 1
    num_content: int = 1
    num_predicted: int = 1
    before: int = 20
    """Columns in use before the pass."""
    hides: bool = False
    documents: bool = False
    row_documents: bool = False
    """Whether rows differ in which keys are of another document."""
    only_predicted: bool = False
    scattered: bool = False
    """Whether rows stand in any columns of their lane, and what is hidden differs between them."""

    @property
    def num_rows(self) -> int:
        return self.num_content + self.num_predicted

    @property
    def num_keys(self) -> int:
        return self.before + self.num_content

    def block(self, seed: int) -> Block:
        config = ModelConfig(
            model_dim=self.model_dim,
            num_heads=self.heads,
            head_dim=self.head_dim,
            ffn_dim=self.ffn_dim,
            memory_tokens=0,
            norm=self.norm,  # type: ignore[arg-type]
            activation=self.activation,  # type: ignore[arg-type]
            positions=self.positions,
            segment_encodings=self.documents,
        )
        torch.manual_seed(seed)
        block = Block(config).double().eval()
        for parameter in block.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        return block


Result = tuple[Tensor, Tensor, Tensor]
"""Rows one layer up, keys and values of the cache."""


@torch.inference_mode()
def passed(case: Case, block: Block, seed: int, dtype: torch.dtype, fused: bool) -> Result:
    """The block, whose weights have the values of `dtype`, as it decodes in that type."""
    layer = DecodingLayer(block.to(dtype), case.activation)
    cache_dtype = attention_dtype(layer.projection.weight_OI)
    random = torch.Generator().manual_seed(seed)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64)

    columns = case.num_keys + case.num_predicted + 3
    span = DistanceSpan(low=1 - columns, high=columns)
    table_RD = sinusoid_table(span, case.model_dim, torch.device("cpu")).to(dtype)
    cache_shape = (case.heads, case.lanes, columns, case.head_dim)
    keys, values = numbers(*cache_shape).to(cache_dtype), numbers(*cache_shape).to(cache_dtype)
    distances = block.attention.distances(span, table_RD).to(cache_dtype)
    cache = LayerCache(keys, values, distances)
    rows_BQD = numbers(case.lanes, case.num_rows, case.model_dim).to(
        torch.promote_types(dtype, torch.float32)
    )
    layout = make_layout(case, span, numbers(case.lanes, case.num_rows, columns), dtype)
    if fused:
        one = fused_of(layer)
        assert one.takes(rows_BQD)
        num_passed = case.num_predicted if case.only_predicted else case.num_rows
        rows_BPD = one.advance(rows_BQD, [cache], layout, num_passed)
    else:
        rows_BPD = layer.advance(rows_BQD, cache, layout, only_predicted=case.only_predicted)
    return rows_BPD, cache.key_NBCH, cache.value_NBCH


def fused_of(*layers: DecodingLayer) -> FusedLayers:
    fused = FusedLayers.of(layers)
    assert fused is not None
    return fused


def make_layout(case: Case, span: DistanceSpan, random_BQC: Tensor, dtype: torch.dtype) -> PassLayout:
    """Lane 0 sees all columns or, where some are hidden, none."""
    hidden_B1K = sees_any_B11 = other_BQK = None
    column_Q = torch.arange(case.before, case.before + case.num_rows)
    if case.hides:
        of_rows_BQC = random_BQC if case.scattered else random_BQC[:, :1]
        hidden_B1C = (of_rows_BQC > 0.3).index_fill(0, torch.tensor([0]), True)
        zeros_B1C = torch.zeros(hidden_B1C.shape, dtype=dtype)
        hidden_B1K = zeros_B1C.masked_fill(hidden_B1C, torch.finfo(dtype).min)[:, :, : case.num_keys]
        sees_any_B11 = (hidden_B1K == 0).any(dim=-1, keepdim=True)
    if case.documents:
        other_BQK = (random_BQC < 0)[:, : case.num_rows if case.row_documents else 1, : case.num_keys]
    column_BQ = column_Q.expand(case.lanes, -1)
    if case.scattered:
        column_BQ = random_BQC[:, 0].argsort(dim=-1)[:, : case.num_rows]
    return PassLayout(
        span,
        case.num_content,
        case.num_keys,
        column_BQ,
        hidden_B1K,
        sees_any_B11,
        None if case.scattered else case.before,
        column_BQ if case.scattered else None,
        other_BQK,
    )


def error(found: Result, wanted: Result) -> float:
    """The largest of the three relative errors; NaN where one is."""
    errors = []
    for one, other in zip(found, wanted, strict=True):
        if other.numel():
            errors.append(float((one.double() - other.double()).norm() / other.double().norm()))
        assert one.shape == other.shape
    return float(torch.tensor(errors, dtype=torch.float64).max())


def test_an_error_that_is_no_number_is_not_lost() -> None:
    right, wrong = torch.ones(2), torch.tensor([1.0, torch.nan])
    for found in ((wrong, right, right), (right, wrong, right), (right, right, wrong)):
        assert not error(found, (right, right, right)) < FP32_TOLERANCE


cases = st.builds(
    Case,
    heads=st.sampled_from([2, 4]),
    head_dim=st.sampled_from([16, 48, 64, 80]),
    model_dim=st.sampled_from([32, 96]),
    ffn_dim=st.sampled_from([32, 160]),
    norm=st.sampled_from(["pre", "post"]),
    activation=st.sampled_from(["gelu", "relu", "swiglu"]),
    positions=st.sampled_from([TransformerXLPositions(), AbsoluteSinusoidalPositions()]),
    lanes=st.sampled_from([1, 2, 5, 17]),
    num_content=st.integers(0, 5) | st.integers(6, 16),
    num_predicted=st.integers(1, 2) | st.integers(3, 16),
    before=st.integers(0, 40),
    hides=st.booleans(),
    documents=st.booleans(),
    row_documents=st.booleans(),
    scattered=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(case=cases, seed=st.integers(0, 1000))
def test_float32_equals_the_plain_layer_in_float64(case: Case, seed: int) -> None:
    block = case.block(seed).float()
    found = passed(case, block, seed, torch.float32, fused=True)
    wanted = passed(case, block, seed, torch.float64, fused=False)
    assert error(found, wanted) < FP32_TOLERANCE


@settings(max_examples=20, deadline=None)
@given(case=cases, seed=st.integers(0, 1000))
def test_the_last_layer_passes_on_its_predicted_rows(case: Case, seed: int) -> None:
    """Of content rows alone only the keys and values stay."""
    for last in (
        replace(case, only_predicted=True),
        replace(case, num_content=2, num_predicted=0, only_predicted=True),
    ):
        block = last.block(seed).float()
        found = passed(last, block, seed, torch.float32, fused=True)
        wanted = passed(last, block, seed, torch.float64, fused=False)
        assert found[0].shape[1] == last.num_predicted
        assert error(found, wanted) < FP32_TOLERANCE


@pytest.mark.parametrize("lanes", [1, 3, 4, 16])
@pytest.mark.parametrize(("norm", "activation"), [("post", "gelu"), ("pre", "swiglu"), ("post", "relu")])
def test_bfloat16_is_no_worse_than_the_plain_layer(norm: str, activation: str, lanes: int) -> None:
    case = Case(4, 64, 256, 512, norm, activation, lanes=lanes, before=100, documents=True)
    block = case.block(0).bfloat16()
    if lanes * case.num_rows > MAX_FEW_ROWS and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        rows_BQD = torch.zeros(lanes, case.num_rows, 256)
        assert not fused_of(DecodingLayer(block, case.activation)).takes(rows_BQD)
        return
    exact = passed(case, block, 0, torch.float64, fused=False)
    fused = passed(case, block, 0, torch.bfloat16, fused=True)
    plain = passed(case, block, 0, torch.bfloat16, fused=False)
    assert error(fused, exact) <= BF16_AGAINST_PLAIN * error(plain, exact)


@pytest.mark.parametrize(
    "case",
    [
        Case(positions=RotaryPositions()),
        Case(positions=ShawPositions(max_distance_tokens=5)),
        Case(head_dim=8),
        Case(model_dim=48),
        Case(ffn_dim=48),
    ],
)
def test_other_layers_stay_plain(case: Case) -> None:
    known = DecodingLayer(Case().block(0).float(), case.activation)
    assert FusedLayers.of([known]) is not None
    assert FusedLayers.of([known, DecodingLayer(case.block(0).float(), case.activation)]) is None


def test_many_rows_of_a_lane_stay_plain() -> None:
    case = Case()
    fused = fused_of(DecodingLayer(case.block(0).float(), case.activation))
    assert fused.takes(torch.zeros(1, MAX_FEW_ROWS, 32))
    assert fused.takes(torch.zeros(100, 32, 32))
    assert not fused.takes(torch.zeros(1, 33, 32))


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_many_lanes_need_weights_laid_out_for_many_rows(
    activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pretrain.inference.linear.packed_weight", lambda weight_OI: None)
    case = Case(activation=activation, lanes=MAX_FEW_ROWS, positions=AbsoluteSinusoidalPositions())
    fused = fused_of(DecodingLayer(case.block(0).float(), activation))
    layout = make_layout(case, DistanceSpan(low=-30, high=30), torch.zeros(1, 2, 30), torch.float32)
    assert fused.takes(torch.zeros(1, 2, 32))
    assert not fused.takes(torch.zeros(MAX_FEW_ROWS, 2, 32))
    cache = torch.zeros(case.heads, MAX_FEW_ROWS, 30, case.head_dim)
    distances = case.block(0).attention.distances(layout.span, None)
    with pytest.raises(RuntimeError, match="oneDNN's layout"):
        fused.advance(torch.zeros(MAX_FEW_ROWS, 2, 32), [LayerCache(cache, cache, distances)], layout, 2)


def test_a_pass_outside_the_cache_is_refused() -> None:
    case = Case(positions=AbsoluteSinusoidalPositions())
    fused = fused_of(DecodingLayer(case.block(0).float(), case.activation))
    cache = case.heads, 1, 21, case.head_dim
    layout = make_layout(case, DistanceSpan(low=-9, high=9), torch.zeros(1, 2, 30), torch.float32)
    distances = case.block(0).attention.distances(layout.span, None)
    full = LayerCache(torch.zeros(cache), torch.zeros(cache), distances)
    rows_BQD = torch.zeros(1, 2, case.model_dim)
    assert fused.advance(rows_BQD, [full], layout, 2).shape == (1, 2, case.model_dim)
    with pytest.raises(RuntimeError, match="columns of the cache"):
        fused.advance(rows_BQD, [full], replace(layout, first_column=21), 2)
    for columns in ([-1, 3], [21, 3]):
        scattered = replace(layout, first_column=None, column_BQ=torch.tensor([columns]))
        with pytest.raises(RuntimeError, match="columns of the cache"):
            fused.advance(rows_BQD, [full], scattered, 2)
    with pytest.raises(RuntimeError, match="keys in the cache"):
        fused.advance(rows_BQD, [full], replace(layout, num_keys=22), 2)
