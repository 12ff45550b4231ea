"""Finds where the host reads what a GPU computes, or gives it what a GPU waits for, in code that runs on a CPU.

On a GPU such a place makes the host wait for all work queued before. A tensor counts as one of the device unless it was
made from the host's own numbers without naming a device. Waits for streams and events, which a CPU does not have, are
noted by `pretended_gpu.py`.
"""

import traceback
from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

_READS = {
    "aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal", "aten::nonzero", "aten::masked_select",
    "aten::_unique2", "aten::unique_consecutive", "aten::unique_dim", "aten::bincount", "aten::allclose",
    "aten::_is_all_true", "aten::_is_any_true", "aten::repeat_interleave",
}  # fmt: skip
_PYTHON_READS = {
    Tensor.tolist, Tensor.item, Tensor.numpy, Tensor.cpu, Tensor.__bool__, Tensor.__float__, Tensor.__int__,
    Tensor.__index__, Tensor.__array__, Tensor.__contains__,
}  # fmt: skip
_MAKERS = {torch.tensor, torch.as_tensor, torch.asarray}
_OWN_FILES = ("device_reads.py", "pretended_gpu.py", "reads_main.py", "contextlib.py")
_INDEXING = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}


class DeviceReads:
    """While it is active, counts reads by the innermost line outside of torch."""

    def __init__(self) -> None:
        self.places: Counter[str] = Counter()
        self._of_host = WeakTensorKeyDictionary()
        self._seen, self._called = _Dispatched(self), _Called(self)

    def __enter__(self) -> "DeviceReads":
        self._seen.__enter__()
        self._called.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._called.__exit__(*error)
        self._seen.__exit__(*error)

    def note(self, what: str) -> None:
        """Count a read at the line that caused it."""
        for frame in reversed(traceback.extract_stack()):
            if "/torch/" not in frame.filename and not frame.filename.endswith(_OWN_FILES):
                path = frame.filename.split("site-packages/")[-1]
                self.places[f"{path}:{frame.name}: {what}"] += 1
                return

    def is_of_host(self, tensors: list[Tensor]) -> bool:
        """Whether all of these were made from the host's numbers."""
        return bool(tensors) and all(tensor in self._of_host for tensor in tensors)

    def mark_of_host(self, result: Any) -> None:
        """Remember tensors that the device has nothing to do with."""
        for tensor in _tensors(result):
            self._of_host[tensor] = True


class _Dispatched(TorchDispatchMode):
    """Sees the operators that run, whoever calls them."""

    def __init__(self, reads: DeviceReads) -> None:
        super().__init__()
        self._reads = reads

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, given = func._schema.name, _tensors([args, kwargs or {}])
        is_of_host = self._reads.is_of_host(given)
        if name in _READS and not is_of_host:
            self._reads.note(name)
        if name in _INDEXING and any(tensor.dtype in (torch.bool, torch.uint8) for tensor in given[1:]):
            self._reads.note(f"{name} by a mask")
        result = func(*args, **(kwargs or {}))
        if is_of_host:
            self._reads.mark_of_host(result)
        return result


class _Called(TorchFunctionMode):
    """Sees what Python calls: reads that run no operator on a CPU, and tensors made from Python's numbers."""

    def __init__(self, reads: DeviceReads) -> None:
        super().__init__()
        self._reads = reads

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func in _PYTHON_READS and not self._reads.is_of_host(_tensors(args[:1])):
            self._reads.note(func.__name__)
        result = func(*args, **given)
        if func in _MAKERS:
            if given.get("device") is None:
                self._reads.mark_of_host(result)
            else:
                self._reads.note(f"{func.__name__} on the device")
        return result


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]
