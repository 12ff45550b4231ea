"""The whole model on the kernels, interpreted: what it computes, and that torch.compile takes it whole."""

import pytest
import torch
from torch import Tensor, nn

from pretrain.model import attention
from pretrain.model.config import (
    AbsoluteLearnedPositions,
    ModelConfig,
    PositionsConfig,
    RotaryPositions,
    ShawPositions,
    TransformerXLPositions,
)
from pretrain.model.layout import TokenLayout
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.orders.config import ObjectiveConfig
from pretrain.orders.sampling import OrderMixture
from pretrain.orders.words import WordPieces
from tests.unit.pretrain.model.gpu.interpreted import tiles_of

VOCAB, LANES, LENGTH, MEMORY = 50, 2, 32, 16
FP32_TOLERANCE = 1e-4


@pytest.fixture
def _kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "served_by_kernels", lambda *_: True)


def _model(positions: PositionsConfig, **others: object) -> TwoStreamTransformer:
    torch.manual_seed(0)
    memory = 0 if positions.kind.startswith("absolute") else MEMORY
    config = ModelConfig.model_validate(
        {
            **{"num_layers": 2, "model_dim": 32, "num_heads": 2, "head_dim": 16, "ffn_dim": 64},
            **{"dropout": 0.0, "memory_tokens": memory, "positions": positions, **others},
        }
    )
    return TwoStreamTransformer(config, VOCAB)


def _batch() -> tuple[Tensor, TokenLayout, TokenLayout, Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens_BL = torch.randint(VOCAB, (LANES, LENGTH), generator=generator)
    always = torch.ones(VOCAB, dtype=torch.bool)
    mixture = OrderMixture(
        ObjectiveConfig(max_gap_tokens=4), LENGTH, WordPieces(always, always), torch.device("cpu")
    )
    orders = mixture.orders(tokens_BL, 0, 3, range(LANES))
    group_BL = (torch.arange(LENGTH) >= LENGTH // 2).long().expand(LANES, -1)
    content, targets = orders.layouts(group_BL, group_BL * 3, mixture.extent)
    return tokens_BL, content, targets, orders.wanted(tokens_BL, 0)


def _gradients(model: nn.Module, num_segments: int = 2) -> dict[str, Tensor]:
    """The gradients of the losses of segments, each with the memory of the one before."""
    tokens_BL, content, targets, wanted_BP = _batch()
    memory, loss = None, torch.zeros(())
    for _ in range(num_segments):
        output = model(tokens_BL, content, targets, memory, wanted_BP)
        memory, loss = output.memory, loss + output.loss
    loss.backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {"loss": loss.detach()} | {
        name.removeprefix("_orig_mod."): grad.clone() for name, grad in found.items() if grad is not None
    }


@pytest.mark.parametrize(
    "positions",
    [
        TransformerXLPositions(),
        RotaryPositions(),
        ShawPositions(max_distance_tokens=9),
        AbsoluteLearnedPositions(max_positions=64),
    ],
    ids=lambda positions: positions.kind,
)
@pytest.mark.parametrize("segment_encodings", [False, True])
def test_the_model_computes_what_it_does_without_kernels(
    positions: PositionsConfig, segment_encodings: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = _gradients(_model(positions, segment_encodings=segment_encodings))
    calls = []

    def serve(*inputs: object) -> bool:
        calls.append(inputs)
        return positions.kind != "shaw"  # its values are plain

    monkeypatch.setattr(attention, "served_by_kernels", serve)
    with tiles_of(16, 32):
        found = _gradients(_model(positions, segment_encodings=segment_encodings))
    assert len(calls) == 4
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        assert (gradient - expected[name]).abs().max() < FP32_TOLERANCE, name


@pytest.mark.usefixtures("_kernels")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_compile_takes_the_model_whole() -> None:
    with tiles_of(16, 32):
        expected = _gradients(_model(TransformerXLPositions(), segment_encodings=True), num_segments=1)
        model = _model(TransformerXLPositions(), segment_encodings=True)
        model.compile(fullgraph=True, backend="aot_eager")
        found = _gradients(model, num_segments=1)
    for name, gradient in found.items():
        assert (gradient - expected[name]).abs().max() < FP32_TOLERANCE, name


@pytest.mark.usefixtures("_kernels")
def test_recomputed_layers_drop_the_same_weights() -> None:
    gradients = []
    for recompute in ("none", "attention", "layers"):
        model = _model(TransformerXLPositions(), attention_dropout=0.3).train()
        model.recompute = recompute
        torch.manual_seed(5)
        with tiles_of(16, 32):
            gradients.append(_gradients(model, num_segments=1))
    for name, gradient in gradients[0].items():
        assert all(torch.equal(gradient, other[name]) for other in gradients[1:]), name


@pytest.mark.usefixtures("_kernels")
def test_all_layers_share_the_tables_of_their_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    real = torch.ops.permcode_gpu.mask_tables

    def count(*inputs: object) -> object:
        made.append(inputs)
        return real(*inputs)

    monkeypatch.setattr(torch.ops.permcode_gpu, "mask_tables", count)
    tokens_BL, content, targets, _ = _batch()
    with tiles_of(16, 32):
        _model(TransformerXLPositions(), num_layers=4)(tokens_BL, content, targets)
    assert len(made) == 2  # the last layer has rows of its own
