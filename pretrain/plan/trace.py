"""What one forward and backward pass allocates, moves and multiplies, found by running it without computing.

The model is built on PyTorch's meta device, whose tensors have shapes but no contents, and every operation, allocation
and release is counted while a micro-batch goes forward and back. Nothing of the model's code is repeated here, so the
answers follow it. What an allocator rounds up, keeps in reserve or cannot use for being in pieces is not in them.

Shapes: B lanes, L segment, P predicted.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from pretrain.model.config import ModelConfig, Recompute
from pretrain.model.fused.gpu.attend import backward_workspace_bytes
from pretrain.model.fused.gpu.choice import planned_for_kernels
from pretrain.model.fused.gpu.output_loss import workspace_bytes
from pretrain.model.layout import TokenLayout
from pretrain.model.transformer import TwoStreamTransformer

_NOISE = torch.ops.aten.bernoulli_.float
"""Operators of dropout, whose masks GPUs keep as bytes; without a device PyTorch makes them in the input's type."""
_WORKSPACES: dict[Any, Callable[..., int]] = {
    torch.ops.permcode_gpu.attend_backward.default: backward_workspace_bytes,
    torch.ops.permcode_gpu.output_loss.default: workspace_bytes,
}
"""The bytes that our own operators allocate within themselves, by their arguments."""


@dataclass(frozen=True)
class PassShape:
    """A micro-batch's forward and backward pass: B lanes of L tokens, P of them predicted, with weights of `dtype`."""

    model: ModelConfig
    vocab_size: int
    lanes: int
    segment_tokens: int
    extent_tokens: int
    """Positions are below this: L, or more where an order leaves gaps."""
    num_targets: int
    dtype: torch.dtype
    recompute: Recompute = "none"
    with_kernels: bool = True
    """Whether attention and loss are the kernels for GPUs; else they are plain operations."""


@dataclass(frozen=True)
class TensorShape:
    """The shape and type of a tensor that is no longer held."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, value: Any) -> Any:
        """Return the shape of a tensor, and any other value as it is."""
        return cls(tuple(value.shape), value.dtype) if isinstance(value, Tensor) else value


@dataclass(frozen=True)
class Operation:
    """One operation on tensors, as a GPU without a compiler makes it."""

    name: str
    flops: int
    """Of matrix products; of our kernels 0, which are counted elsewhere."""
    moved_bytes: int
    """Bytes of the tensors that are read and written."""
    arguments: tuple[Any, ...] = ()
    """Of our own operators, with the shapes of tensors in place of tensors."""


@dataclass(frozen=True)
class TracedPass:
    """Bytes on top of weights, gradients and the segment memory before the pass, and what was done."""

    kept_bytes: int
    """Alive between the forward and the backward pass: activations, logits, the new segment memory."""
    peak_bytes: int
    """The most bytes that are alive at once, temporaries included."""
    operations: tuple[Operation, ...]


class OperationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all storages that operations allocate within the block and of those still alive, and lists
    the operations that move data."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive_bytes = 0
        self.peak_bytes = 0
        self.operations: list[Operation] = []
        self._known: dict[int, int] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operation, count the storages that it returned, and note the operation."""
        kwargs = kwargs or {}
        for storage in _storages((args, kwargs)):
            # An input that no operation has returned existed before the pass.
            self._see(storage, num_bytes=0)
        result = func(*args, **kwargs)
        for storage in _storages(result):
            self._see(storage, storage.nbytes())
            if func is _NOISE:
                self._resize(storage, storage.nbytes() // result.element_size())
        if func in _WORKSPACES:
            self.peak_bytes = max(self.peak_bytes, self.alive_bytes + _WORKSPACES[func](*args, **kwargs))
        self._note(func, args, kwargs, result)
        return result

    def _note(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        inputs = {storage._cdata for storage in _storages((args, kwargs))}
        is_view = (
            all(storage._cdata in inputs for storage in _storages(result)) and not func._schema.is_mutable
        )
        if is_view or func.is_view:
            return
        moved_bytes = sum(
            tensor.numel() * tensor.element_size()
            for tensor in tree_leaves((args, kwargs, result))
            if isinstance(tensor, Tensor)
        )
        count = flop_registry.get(func._overloadpacket)
        flops = count(*args, **kwargs, out_val=result) if count is not None else 0
        own = map(TensorShape.of, args) if func.namespace == "permcode_gpu" else ()
        self.operations.append(Operation(func._overloadpacket.__name__, flops, moved_bytes, tuple(own)))

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


@cache
def traced(shape: PassShape) -> TracedPass:
    """Trace a training pass."""
    config = shape.model
    with torch.device("meta"), planned_for_kernels() if shape.with_kernels else nullcontext():
        model = TwoStreamTransformer(config, shape.vocab_size).to(shape.dtype)
        model.recompute = shape.recompute
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(_drop_gradient)  # type: ignore[no-untyped-call]
        tokens_BL = torch.zeros(shape.lanes, shape.segment_tokens, dtype=torch.int64)
        wanted_BP = torch.zeros(shape.lanes, shape.num_targets, dtype=torch.int64)
        documents_BL = tokens_BL if config.segment_encodings else None
        content = TokenLayout(tokens_BL, tokens_BL, tokens_BL, documents_BL, shape.extent_tokens)
        memory = model.empty_memory(shape.lanes)
        with OperationCounter() as counter:
            output = model(tokens_BL, content, content.at(wanted_BP), memory, wanted_BP)
            kept_bytes = counter.alive_bytes
            output.loss.backward()
    return TracedPass(kept_bytes, counter.peak_bytes, tuple(counter.operations))


def _storages(values: Any) -> Iterator[torch.UntypedStorage]:
    return (leaf.untyped_storage() for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


def _drop_gradient(parameter: Tensor) -> None:
    """Remove the parameter's gradient, because gradients are counted with the weights, not here."""
    parameter.grad = None
