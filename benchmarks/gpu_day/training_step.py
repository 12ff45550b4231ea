"""Whole training steps: orders, forward and backward pass, clipping, AdamW over float32 masters of bfloat16 weights.

Shapes: B lanes, L segment.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from benchmarks.gpu_day.causal_model import CausalModel
from benchmarks.gpu_day.day import Scale, StepShape
from pretrain.model import attention, loss
from pretrain.model.fused.gpu import choice
from pretrain.model.transformer import TwoStreamTransformer
from pretrain.orders.config import ObjectiveConfig
from pretrain.orders.sampling import OrderMixture
from pretrain.orders.words import WordPieces

_END_HOLE_ID = 7
_CLIP_NORM = 1.0


class MasterAdamW:
    """torch's fused AdamW over float32 copies of bfloat16 weights, with gradients clipped; the host never waits."""

    def __init__(self, model: nn.Module) -> None:
        self._weights: list[Tensor] = list(model.parameters())
        self._masters = [weight.detach().float().clone() for weight in self._weights]
        self._adamw = torch.optim.AdamW(self._masters, lr=1e-4, fused=True)

    @torch.no_grad()
    def step(self) -> None:
        """Update the weights and forget their gradients."""
        gradients = [weight.grad for weight in self._weights]
        for master, gradient in zip(self._masters, gradients, strict=True):
            master.grad = torch.zeros_like(master) if gradient is None else gradient.float()
        torch.nn.utils.clip_grad_norm_(self._masters, _CLIP_NORM, foreach=True)
        self._adamw.step()
        torch._foreach_copy_(self._weights, self._masters)
        for weight, master in zip(self._weights, self._masters, strict=True):
            weight.grad = master.grad = None


class OurStep:
    """Steps of our model on random tokens; the memory is full after the first few."""

    def __init__(self, scale: Scale, shape: StepShape, device: torch.device, dropout: bool) -> None:
        torch.manual_seed(0)
        self.config = scale.config(shape.memory_tokens, dropout)
        model = TwoStreamTransformer(self.config, scale.vocab_size).to(device, torch.bfloat16).train()
        self.model: Any = model
        self.objective = ObjectiveConfig(target_share=scale.target_share)
        words = WordPieces(*(torch.arange(scale.vocab_size, device=device) % 3 > 0).expand(2, -1))
        self._mixture = OrderMixture(self.objective, shape.segment_tokens, words, device)
        self._shape = shape
        self._tokens_BL = random_tokens(scale, shape, device)
        self._group_BL = torch.zeros_like(self._tokens_BL)
        self._memory = model.empty_memory(shape.lanes)
        self._optimizer = MasterAdamW(model)
        self._number = 0

    def pass_only(self) -> Tensor:
        """Make the forward and the backward pass of the next step; return the loss."""
        orders = self._mixture.orders(self._tokens_BL, 0, self._number, range(self._shape.lanes))
        content, targets = orders.layouts(self._group_BL, self._group_BL, self._mixture.extent)
        wanted_BP = orders.wanted(self._tokens_BL, _END_HOLE_ID)
        output = self.model(self._tokens_BL, content, targets, self._memory, wanted_BP)
        output.loss.backward()
        self._memory, self._number = output.memory, self._number + 1
        loss: Tensor = output.loss.detach()
        return loss

    def step(self) -> Tensor:
        """Make a step; return the loss."""
        found = self.pass_only()
        self._optimizer.step()
        return found


class CausalStep:
    """Steps of the causal model of the same size on the same tokens."""

    def __init__(self, scale: Scale, shape: StepShape, device: torch.device, dropout: bool) -> None:
        torch.manual_seed(0)
        self.config = scale.config(0, dropout)
        model = CausalModel(self.config, scale.vocab_size, shape.segment_tokens)
        self.model: Any = model.to(device, torch.bfloat16).train()
        self._tokens_BL = random_tokens(scale, shape, device)
        self._optimizer = MasterAdamW(self.model)

    def step(self) -> Tensor:
        """Make a step; return the loss."""
        loss: Tensor = self.model(self._tokens_BL)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return loss.detach()


def random_tokens(scale: Scale, shape: StepShape, device: torch.device) -> Tensor:
    """Return tokens [B, L], the same ones for all models."""
    draw = torch.Generator().manual_seed(0)
    size = (shape.lanes, shape.segment_tokens)
    return torch.randint(0, scale.vocab_size, size, generator=draw).to(device)


@contextmanager
def attention_by(kernels: bool, device: torch.device) -> Iterator[None]:
    """Let the model use the kernels or plain operations within the block; a CPU interprets kernels."""
    always: Callable[..., bool] = lambda *_: kernels  # noqa: E731
    with ExitStack() as patches:
        if device.type == "cuda" and not kernels:
            patches.enter_context(patch.object(choice, "_runs_kernels", always))
        elif device.type != "cuda" and kernels:
            patches.enter_context(patch.object(attention, "served_by_kernels", always))
            patches.enter_context(patch.object(loss, "has_kernels", always))
        yield
