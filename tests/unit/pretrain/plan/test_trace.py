"""Traced memory is what PyTorch's allocator really hands out.

Compared in float32: in bfloat16 the CPU's scatter works in a float32 copy of its result, which is not traced.
"""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from pretrain.model import attention
from pretrain.model import loss as loss_module
from pretrain.model.config import ModelConfig, Recompute
from pretrain.model.layout import TokenLayout
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.plan.flops import forward_flops
from pretrain.plan.trace import OperationCounter, PassShape, TracedPass, traced

LANES, LENGTH, EXTENT, NUM_TARGETS, VOCAB_SIZE = 4, 64, 70, 32, 500
TOLERANCE = 0.01
CHOICES: list[dict[str, object]] = [
    {},
    {"positions": {"kind": "shaw"}, "segment_encodings": True},
    {"activation": "swiglu", "norm": "pre", "tie_embeddings": False},
]


def config_of(choice: dict[str, object]) -> ModelConfig:
    base: dict[str, object] = {
        "num_layers": 4,
        "model_dim": 64,
        "num_heads": 4,
        "head_dim": 16,
        "ffn_dim": 256,
        "memory_tokens": 48,
        "dropout": 0.0,
    }
    return ModelConfig.model_validate({**base, **choice})


def trace(config: ModelConfig, recompute: Recompute = "none") -> TracedPass:
    """What is found of a pass in float32 with plain operations."""
    sizes = (VOCAB_SIZE, LANES, LENGTH, EXTENT, NUM_TARGETS)
    return traced(PassShape(config, *sizes, torch.float32, recompute, with_kernels=False))


class RealPass:
    """A micro-batch's forward and backward pass on the CPU."""

    def __init__(self, config: ModelConfig, recompute: Recompute) -> None:
        self.model = TwoStreamTransformer(config, VOCAB_SIZE)
        self.model.recompute = recompute
        for parameter in self.model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda leaf: setattr(leaf, "grad", None))
        self.tokens_BL = torch.zeros(LANES, LENGTH, dtype=torch.int64)
        self.target_BP = torch.arange(NUM_TARGETS).expand(LANES, -1).contiguous()
        documents = self.tokens_BL if config.segment_encodings else None
        position_BL = torch.arange(LENGTH).expand(LANES, -1)
        self.content = TokenLayout(position_BL, self.tokens_BL, self.tokens_BL, documents, EXTENT)
        self.memory = self.model.empty_memory(LANES)

    def loss(self) -> torch.Tensor:
        targets = self.content.at(self.target_BP)
        self.output = self.model(self.tokens_BL, self.content, targets, self.memory, self.target_BP)
        loss: torch.Tensor = self.output.loss
        return loss


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "fusable", lambda *_arguments: False)
    monkeypatch.setattr(loss_module, "cross_entropy_fusable", lambda _logits: False)


@pytest.mark.filterwarnings("ignore")  # the profiler warns of what it leaves to other threads
@pytest.mark.parametrize("recompute", ["none", "attention", "layers"])
@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_the_peak_is_the_allocators(choice: dict[str, object], recompute: Recompute) -> None:
    config = config_of(choice)
    real = RealPass(config, recompute)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        real.loss().backward()  # type: ignore[no-untyped-call]
    alive_bytes = peak_bytes = 0
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            alive_bytes += event.nbytes()
            peak_bytes = max(peak_bytes, alive_bytes)
    found = trace(config, recompute)
    # What a layer computes again is held a little differently where there are shapes alone.
    tolerance = TOLERANCE if recompute == "none" else 3 * TOLERANCE
    assert found.peak_bytes == pytest.approx(peak_bytes, rel=tolerance)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_what_is_kept_is_what_autograd_saves_and_what_is_returned(choice: dict[str, object]) -> None:
    config = config_of(choice)
    real = RealPass(config, "none")
    there_before = [*real.model.parameters(), *real.memory.layers_BMD]
    counted_elsewhere = {tensor.untyped_storage().data_ptr() for tensor in there_before}
    saved: dict[int, torch.UntypedStorage] = {}

    def remember(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in counted_elsewhere:
            saved[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
        loss = real.loss()
    for tensor in real.output.memory.layers_BMD:
        remember(tensor)
    saved_bytes = sum(storage.nbytes() for storage in saved.values())
    found = trace(config)
    assert loss.requires_grad
    assert found.kept_bytes == pytest.approx(saved_bytes, rel=TOLERANCE)


def test_allocations_are_counted_until_they_are_released() -> None:
    with OperationCounter() as counter:
        first = torch.zeros(100, dtype=torch.float32)
        view = first[10:]
        second = first + 1
        assert counter.alive_bytes == 800
        del second
        assert counter.alive_bytes == 400
        del first
        assert counter.alive_bytes == 400, "the view still needs it"
        del view
    assert (counter.alive_bytes, counter.peak_bytes) == (0, 800)


def test_views_of_what_was_there_before_are_not_counted() -> None:
    before = torch.zeros(100)
    with OperationCounter() as counter:
        view = before[10:].t()
        assert counter.alive_bytes == 0
        del view


def test_dropouts_choices_take_a_byte_each_as_on_a_gpu() -> None:
    pass_of = {dropout: trace(config_of({"attention_dropout": dropout})).kept_bytes for dropout in (0.0, 0.5)}
    heads, layers, keys = 4, 4, LENGTH + 48
    weights = heads * LANES * keys * ((layers - 1) * (LENGTH + NUM_TARGETS) + NUM_TARGETS)
    assert pass_of[0.5] - pass_of[0.0] == weights


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_the_products_are_those_of_the_formulas(choice: dict[str, object]) -> None:
    config = config_of(choice)
    expected = forward_flops(config, LANES, LENGTH, NUM_TARGETS, VOCAB_SIZE, EXTENT).training()
    assert sum(operation.flops for operation in trace(config).operations) == expected


def test_moved_bytes_are_those_of_inputs_and_outputs_and_views_move_none() -> None:
    with OperationCounter() as counter:
        first = torch.zeros(100, 8)
        (first.t() + 1).sum()
    moved = {operation.name: operation.moved_bytes for operation in counter.operations}
    assert moved == {"zeros": 3200, "add": 6400, "sum": 3204}


def of_kernels(length: int, lanes: int = 2) -> TracedPass:
    config = config_of({"segment_encodings": True, "attention_dropout": 0.1})
    shape = PassShape(config, VOCAB_SIZE, lanes, length, length + 32, length // 2, torch.bfloat16)
    return traced(shape)


def test_with_the_kernels_the_peak_grows_linearly_with_the_segment() -> None:
    peaks = [of_kernels(length).peak_bytes for length in (1024, 2048, 4096, 8192)]
    slopes = [(after - before) / before for before, after in zip(peaks, peaks[1:], strict=False)]
    assert all(slope < 1.05 for slope in slopes), slopes
    plain = [
        traced(
            PassShape(
                config_of({}), VOCAB_SIZE, 2, length, length, length // 2, torch.bfloat16, "none", False
            )
        ).peak_bytes
        for length in (1024, 4096)
    ]
    assert plain[1] / plain[0] > 10


def test_with_the_kernels_no_tensor_has_rows_and_keys() -> None:
    rows, keys, heads, lanes = 512 + 256, 48 + 512, 4, 2
    largest = max(operation.moved_bytes for operation in of_kernels(512, lanes).operations)
    assert largest < heads * lanes * rows * keys * 2
