"""The loss from rows is that of their logits, whatever computes it."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from pretrain.model.config import ModelConfig
from pretrain.model.fused.gpu import output_loss as gpu_loss
from pretrain.model.fused.gpu.output_loss import chunked_loss
from pretrain.model.layout import TokenLayout
from pretrain.model.loss import output_loss
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.objective import left_to_right

LANES, PREDICTED, DIM, VOCAB = 3, 37, 32, 301


def _solved(loss: object, dtype: torch.dtype) -> list[Tensor]:
    """The loss and the gradients of rows, weights and biases."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((LANES, PREDICTED, DIM), (VOCAB, DIM), (VOCAB,))
    inputs = [torch.randn(*shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]
    wanted_BP = torch.randint(VOCAB, (LANES, PREDICTED), generator=generator)
    found = loss(*inputs, wanted_BP)  # type: ignore[operator]
    found.backward()
    return [found.detach(), *(x.grad for x in inputs if x.grad is not None)]


def _exact(rows_BPD: Tensor, weight_VD: Tensor, bias_V: Tensor, wanted_BP: Tensor) -> Tensor:
    logits_BPV = functional.linear(rows_BPD, weight_VD, bias_V)
    return functional.cross_entropy(logits_BPV.flatten(0, 1), wanted_BP.flatten())


def _chunked(rows_BPD: Tensor, weight_VD: Tensor, bias_V: Tensor, wanted_BP: Tensor) -> Tensor:
    """A GPU's, interpreted on the CPU."""
    return chunked_loss(rows_BPD.flatten(0, 1), weight_VD, bias_V, wanted_BP.flatten())


@pytest.mark.parametrize("chunk_rows", [1, 32, 1000])
def test_chunks_change_nothing(chunk_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_loss, "chunk_rows", lambda *_: chunk_rows)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.02)):
        found, exact = _solved(_chunked, dtype), _solved(_exact, torch.float64)
        assert found[0].dtype == torch.float32
        for one, other in zip(found, exact, strict=True):
            assert (one - other).norm() < tolerance * other.norm()


@pytest.mark.parametrize("loss", [output_loss, _chunked])
def test_the_loss_and_its_gradients_equal_those_of_the_logits(loss: object) -> None:
    for found, exact in zip(_solved(loss, torch.float32), _solved(_exact, torch.float64), strict=True):
        assert (found - exact).norm() < 1e-5 * exact.norm()
        assert found.dtype == torch.float32


def test_the_model_s_loss_is_that_of_its_logits() -> None:
    torch.manual_seed(0)
    model = TwoStreamTransformer(ModelConfig(num_layers=2, dropout=0.0, memory_tokens=8), VOCAB)
    tokens_BL = torch.randint(VOCAB, (2, 16))
    places: TokenLayout = left_to_right(torch.zeros_like(tokens_BL))
    with_logits = model(tokens_BL, places, places)
    with_loss = model(tokens_BL, places, places, wanted_BP=tokens_BL)
    expected = functional.cross_entropy(with_logits.logits_BPV.flatten(0, 1), tokens_BL.flatten())
    assert with_loss.loss.item() == pytest.approx(expected.item(), rel=1e-6)
    for one, other in zip(with_loss.memory.layers_BMD, with_logits.memory.layers_BMD, strict=True):
        assert torch.equal(one, other)
