"""The working memory of one forward and backward pass, measured by running it without computing.

The model is built on PyTorch's meta device, whose tensors have shapes but no contents, and every allocation and
release is counted while a micro-batch goes forward and back. Nothing of the model's code is repeated here, so the
answer follows it. It is what the plain attention would allocate on a GPU; what an allocator rounds up, keeps in reserve
or cannot use for being in pieces is not in it.

Shapes: B lanes, L segment, P predicted.
"""

import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pretrain.model.config import ModelConfig
from pretrain.model.layout import TokenLayout
from pretrain.model.loss import prediction_loss
from pretrain.model.transformer import TwoStreamTransformer

_NOISE = torch.ops.aten.bernoulli_.float
"""Operators of dropout, whose masks GPUs keep as bytes; without a device PyTorch makes them in the input's type."""


@dataclass(frozen=True)
class WorkingMemory:
    """Bytes on top of weights, gradients and the segment memory before the pass."""

    kept_bytes: int
    """Alive between the forward and the backward pass: activations, logits, the new segment memory."""
    peak_bytes: int
    """The most bytes that are alive at once, temporaries included."""


class AllocationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all storages that operations allocate within the block, and of those still alive."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive_bytes = 0
        self.peak_bytes = 0
        self._known: dict[int, int] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operation and count the storages that it returned."""
        for storage in _storages((args, kwargs)):
            # An input that no operation has returned existed before the pass.
            self._see(storage, num_bytes=0)
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            self._see(storage, storage.nbytes())
            if func is _NOISE:
                self._resize(storage, storage.nbytes() // result.element_size())
        return result

    def _see(self, storage: torch.UntypedStorage, num_bytes: int) -> None:
        if storage._cdata not in self._known:
            self._known[storage._cdata] = 0
            weakref.finalize(storage, self._forget, storage._cdata)
            self._resize(storage, num_bytes)

    def _resize(self, storage: torch.UntypedStorage, num_bytes: int) -> None:
        self._change(num_bytes - self._known[storage._cdata])
        self._known[storage._cdata] = num_bytes

    def _forget(self, key: int) -> None:
        self._change(-self._known.pop(key))

    def _change(self, num_bytes: int) -> None:
        self.alive_bytes += num_bytes
        self.peak_bytes = max(self.peak_bytes, self.alive_bytes)


def working_memory(
    config: ModelConfig,
    vocab_size: int,
    lanes: int,
    segment_tokens: int,
    extent_tokens: int,
    num_targets: int,
    dtype: torch.dtype,
    activation_checkpointing: bool,
) -> WorkingMemory:
    """Measure a training pass over B lanes of L tokens, P of them predicted, with weights of `dtype`.

    Positions are below `extent_tokens`: L, or more where an order leaves gaps.
    """
    with torch.device("meta"):
        model = TwoStreamTransformer(config, vocab_size).to(dtype)
        model.activation_checkpointing = activation_checkpointing
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(_drop_gradient)  # type: ignore[no-untyped-call]
        tokens_BL = torch.zeros(lanes, segment_tokens, dtype=torch.int64)
        wanted_BP = torch.zeros(lanes, num_targets, dtype=torch.int64)
        documents_BL = tokens_BL if config.segment_encodings else None
        content = TokenLayout(tokens_BL, tokens_BL, tokens_BL, documents_BL, extent_tokens)
        memory = model.empty_memory(lanes)
        with AllocationCounter() as counter:
            output = model(tokens_BL, content, content.at(wanted_BP), memory)
            loss = prediction_loss(output.logits_BPV, wanted_BP)
            kept_bytes = counter.alive_bytes
            loss.backward()  # type: ignore[no-untyped-call]
    return WorkingMemory(kept_bytes, counter.peak_bytes)


def _storages(values: Any) -> Iterator[torch.UntypedStorage]:
    return (leaf.untyped_storage() for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


def _drop_gradient(parameter: Tensor) -> None:
    """Remove the parameter's gradient, because gradients are counted with the weights, not here."""
    parameter.grad = None
