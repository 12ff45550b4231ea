"""Traced memory is what PyTorch's allocator really hands out.

Compared in float32: in bfloat16 the CPU's scatter works in a float32 copy of its result, which is not traced.
"""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from pretrain import objective
from pretrain.model import attention
from pretrain.model.config import ModelConfig
from pretrain.model.layout import TokenLayout
from pretrain.model.loss import prediction_loss
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.plan.trace import AllocationCounter, working_memory

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


class RealPass:
    """A micro-batch's forward and backward pass on the CPU."""

    def __init__(self, config: ModelConfig, checkpointing: bool) -> None:
        self.model = TwoStreamTransformer(config, VOCAB_SIZE)
        self.model.activation_checkpointing = checkpointing
        for parameter in self.model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda leaf: setattr(leaf, "grad", None))
        self.tokens_BL = torch.zeros(LANES, LENGTH, dtype=torch.int64)
        self.target_BP = torch.arange(NUM_TARGETS).expand(LANES, -1).contiguous()
        documents = self.tokens_BL if config.segment_encodings else None
        position_BL = torch.arange(LENGTH).expand(LANES, -1)
        self.content = TokenLayout(position_BL, self.tokens_BL, self.tokens_BL, documents, EXTENT)
        self.memory = self.model.empty_memory(LANES)

    def loss(self) -> torch.Tensor:
        self.output = self.model(self.tokens_BL, self.content, self.content.at(self.target_BP), self.memory)
        return prediction_loss(self.output.logits_BPV, self.target_BP)


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "fusable", lambda *_arguments: False)
    monkeypatch.setattr(objective, "cross_entropy_fusable", lambda _logits: False)


@pytest.mark.filterwarnings("ignore")  # the profiler warns of what it leaves to other threads
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_the_peak_is_the_allocators(choice: dict[str, object], checkpointing: bool) -> None:
    config = config_of(choice)
    real = RealPass(config, checkpointing)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        real.loss().backward()  # type: ignore[no-untyped-call]
    alive_bytes = peak_bytes = 0
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            alive_bytes += event.nbytes()
            peak_bytes = max(peak_bytes, alive_bytes)
    traced = working_memory(
        config,
        VOCAB_SIZE,
        LANES,
        LENGTH,
        EXTENT,
        NUM_TARGETS,
        torch.float32,
        activation_checkpointing=checkpointing,
    )
    # What a layer computes again is held a little differently where there are shapes alone.
    tolerance = 3 * TOLERANCE if checkpointing else TOLERANCE
    assert traced.peak_bytes == pytest.approx(peak_bytes, rel=tolerance)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_what_is_kept_is_what_autograd_saves_and_what_is_returned(choice: dict[str, object]) -> None:
    config = config_of(choice)
    real = RealPass(config, checkpointing=False)
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
    for tensor in (real.output.logits_BPV, *real.output.memory.layers_BMD):
        remember(tensor)
    saved_bytes = sum(storage.nbytes() for storage in saved.values())
    traced = working_memory(config, VOCAB_SIZE, LANES, LENGTH, EXTENT, NUM_TARGETS, torch.float32, False)
    assert loss.requires_grad
    assert traced.kept_bytes == pytest.approx(saved_bytes, rel=TOLERANCE)


def test_allocations_are_counted_until_they_are_released() -> None:
    with AllocationCounter() as counter:
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
    with AllocationCounter() as counter:
        view = before[10:].t()
        assert counter.alive_bytes == 0
        del view


def test_dropouts_choices_take_a_byte_each_as_on_a_gpu() -> None:
    pass_of = {
        dropout: working_memory(
            config_of({"attention_dropout": dropout}),
            VOCAB_SIZE,
            LANES,
            LENGTH,
            EXTENT,
            NUM_TARGETS,
            torch.float32,
            False,
        ).kept_bytes
        for dropout in (0.0, 0.5)
    }
    heads, layers, keys = 4, 4, LENGTH + 48
    weights = heads * LANES * keys * ((layers - 1) * (LENGTH + NUM_TARGETS) + NUM_TARGETS)
    assert pass_of[0.5] - pass_of[0.0] == weights
