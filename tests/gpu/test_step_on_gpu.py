"""A training step never makes the host wait for the GPU, but for the figures, and is the step that the CPU makes."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch

from pretrain.data.device_feed import DeviceFeed
from pretrain.device_copies import PendingNumbers, on_device
from pretrain.model.fused.gpu import choice
from tests.torch_step import Feed, TorchStep, equal

CYCLES = 1_500_000_000
"""Most of a second of a GPU's clock."""
STEPS = 5
FP32_TOLERANCE = 1e-3
GPU = torch.device("cuda")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature"),
]


@contextmanager
def no_waits() -> Iterator[None]:
    """Any wait of the host for the GPU is an error in this block."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.fixture(params=["plain", "kernels"])
def attention(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which operations the model uses."""
    kind: str = request.param
    if kind == "plain":
        monkeypatch.setattr(choice, "_runs_kernels", lambda _device: False)
    elif reason := choice.why_no_kernels(GPU):
        pytest.skip(reason)
    return kind


def busy() -> torch.cuda.Stream:
    """Give the GPU work for most of a second; return the stream that has it."""
    torch.cuda.synchronize()
    torch.cuda._sleep(CYCLES)
    return torch.cuda.current_stream()


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_step_waits_for_nothing_but_its_figures(attention: str, dropout: float) -> None:
    """In the second round: in the first, kernels are compiled and memory is allocated for all steps in flight."""
    step = TorchStep(GPU, dropout=dropout)
    step.make(0).read()
    for first in (1, 1 + STEPS):
        stream, pending = busy(), []
        with no_waits() if first > 1 else nullcontext():
            for cursor in range(first, first + STEPS):
                pending.append(step.make(cursor))
                is_done = stream.query()
        assert all(one.read()[2] == 1.0 for one in pending)
    assert not is_done, "the host had launched all steps, and the GPU not done them"


def test_the_check_finds_a_wait() -> None:
    numbers = torch.ones(3, device=GPU)
    with no_waits(), pytest.raises(RuntimeError, match="synchroniz"):
        float(numbers.sum())


@pytest.mark.parametrize("spoil", ["loss", "gradient"])
def test_a_step_that_is_not_finite_changes_nothing(attention: str, spoil: str) -> None:
    step = TorchStep(GPU)
    for cursor in range(STEPS):
        step.make(cursor)
    before = step.state()
    *_, is_applied = step.make(STEPS, spoil).read()
    assert not is_applied
    assert equal(step.state(), before)
    *_, is_applied = step.make(STEPS).read()
    assert is_applied
    assert not equal(step.state(), before)


def test_the_first_steps_are_those_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_runs_kernels", lambda _device: False)
    gpu, cpu = TorchStep(GPU, dropout=0.0), TorchStep(torch.device("cpu"), dropout=0.0)
    for cursor in range(STEPS):
        assert gpu.make(cursor).read() == pytest.approx(cpu.make(cursor).read(), rel=FP32_TOLERANCE)


def test_segments_are_copied_while_the_gpu_works_and_are_there_when_they_are_used() -> None:
    """Pinned memory for all copies in flight is allocated in the first round."""
    feed: Any = Feed()
    ahead = DeviceFeed(feed, GPU, with_documents=True)
    for cursors in (range(3), range(3, 6)):
        stream, doubled = busy(), []
        with no_waits():
            for cursor in cursors:
                ahead.prepare(cursor)
                segments, _ = ahead.take(cursor)
                doubled.append([tensor_BL * 2 for tensor_BL in segments.tensors()])
        is_done = stream.query()
        for cursor, tensors in zip(cursors, doubled, strict=True):
            read = feed.take(cursor)
            arrays = [read.tokens_BL, read.group_BL, read.document_BL]
            for found, array_BL in zip(tensors, arrays, strict=True):
                assert torch.equal(found.cpu(), torch.from_numpy(array_BL) * 2)
    assert not is_done, "the host did not wait for the GPU"


def test_numbers_travel_behind_the_work_that_makes_them() -> None:
    for _ in range(2):
        stream = busy()
        with no_waits():
            numbers = on_device(torch.tensor([1.0, 2.0]), GPU) * 3
            pending = PendingNumbers(torch.cat([numbers, numbers.sum().view(1)]))
        is_done = stream.query()
        assert pending.read() == [3.0, 6.0, 9.0]
    assert not is_done, "the host did not wait for the GPU"
