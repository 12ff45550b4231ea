"""The output layer's loss on a GPU, chunk by chunk, is cross entropy; its gradients are those of all logits at once."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from pretrain.model.fused.gpu import output_loss
from pretrain.model.fused.gpu.output_loss import chunk_rows, chunked_loss
from tests.unit.pretrain.model.fused_cases import relative_error

FP32_TOLERANCE = 1e-5
BF16_AGAINST_PLAIN = 2.0
BF16_LOSS_TOLERANCE = 1e-2
"""Of the loss: logits are rounded to bfloat16."""

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature"),
]


def inputs_of(device: torch.device, dtype: torch.dtype) -> tuple[list[Tensor], Tensor]:
    """Rows, weights and biases, and the wanted tokens; more rows than a chunk has."""
    rows, dim, vocab = (2500, 96, 5003) if device.type == "cuda" else (50, 16, 131)
    draw = torch.Generator().manual_seed(0)
    inputs = [torch.randn(*size, generator=draw) for size in ((rows, dim), (vocab, dim), (vocab,))]
    inputs[1] *= dim**-0.5
    wanted_X = torch.randint(vocab, (rows,), generator=draw).to(device)
    return [one.to(device, dtype).requires_grad_() for one in inputs], wanted_X


def plain_loss(rows_XD: Tensor, weight_VD: Tensor, bias_V: Tensor, wanted_X: Tensor) -> Tensor:
    logits_XV = functional.linear(rows_XD, weight_VD, bias_V)
    at_least = torch.promote_types(logits_XV.dtype, torch.float32)
    return functional.cross_entropy(logits_XV.to(at_least), wanted_X)


def results(loss: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    return [loss.detach(), *torch.autograd.grad(loss, inputs)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_loss_and_gradients_are_those_of_cross_entropy(
    dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_loss, "_LEAST_CHUNK_ROWS", 1024 if device.type == "cuda" else 20)
    inputs, wanted_X = inputs_of(device, dtype)
    rows, dim, vocab = len(inputs[0]), inputs[0].shape[1], len(inputs[1])
    assert chunk_rows(rows, dim, vocab) < rows / 2, "three chunks at least"
    exact_inputs = [one.detach().double().requires_grad_() for one in inputs]
    exact = results(plain_loss(*exact_inputs, wanted_X), exact_inputs)
    plain = results(plain_loss(*inputs, wanted_X), inputs)
    found = results(chunked_loss(*inputs, wanted_X), inputs)
    assert found[0].dtype == torch.float32
    tolerance = FP32_TOLERANCE if dtype == torch.float32 else BF16_LOSS_TOLERANCE
    assert abs(float(found[0]) - float(exact[0])) <= tolerance * float(exact[0])
    for name, one, other, reference in zip(
        ("rows", "weights", "biases"), found[1:], plain[1:], exact[1:], strict=True
    ):
        error, of_plain = (float((x.double() - reference).norm() / reference.norm()) for x in (one, other))
        limit = FP32_TOLERANCE if dtype == torch.float32 else BF16_AGAINST_PLAIN * of_plain
        assert error <= limit, name


def test_the_loss_repeats_its_bits_and_scales_its_gradients(device: torch.device) -> None:
    inputs, wanted_X = inputs_of(device, torch.float32)
    first, second = (results(chunked_loss(*inputs, wanted_X), inputs) for _ in range(2))
    tripled = results(3 * chunked_loss(*inputs, wanted_X), inputs)
    for one, other, three_times in zip(first, second, tripled, strict=True):
        assert torch.equal(one, other)
        assert relative_error(three_times / 3, one.double()) < FP32_TOLERANCE


def test_the_loss_never_waits_for_the_gpu(device: torch.device) -> None:
    if device.type == "cpu":
        pytest.skip("needs a GPU")
    inputs, wanted_X = inputs_of(device, torch.bfloat16)
    chunked_loss(*inputs, wanted_X).backward()  # type: ignore[no-untyped-call]
    torch.cuda.set_sync_debug_mode("error")
    try:
        chunked_loss(*inputs, wanted_X).backward()  # type: ignore[no-untyped-call]
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_logits_of_a_chunk_alone_are_in_memory(device: torch.device) -> None:
    if device.type == "cpu":
        pytest.skip("a GPU's allocator is measured")
    rows, dim, vocab = 16_384, 256, 32_000
    rows_XD = torch.randn(rows, dim, device=device, dtype=torch.bfloat16, requires_grad=True)
    weight_VD = torch.randn(vocab, dim, device=device, dtype=torch.bfloat16, requires_grad=True)
    bias_V = torch.zeros(vocab, device=device, dtype=torch.bfloat16, requires_grad=True)
    wanted_X = torch.randint(vocab, (rows,), device=device)
    chunked_loss(rows_XD, weight_VD, bias_V, wanted_X).backward()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    chunked_loss(rows_XD, weight_VD, bias_V, wanted_X).backward()  # type: ignore[no-untyped-call]
    assert torch.cuda.max_memory_allocated() - before < rows * vocab * 2 / 2
