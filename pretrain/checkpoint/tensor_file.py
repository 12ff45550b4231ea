"""A safetensors file that is written piece by piece: no second copy of the tensors is made in memory."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from pretrain.checkpoint.files import FileEntry, write_hashed

_DTYPE_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
}
_ALIGNMENT_BYTES = 8


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> FileEntry:
    """Write tensors that lie in CPU memory; `safetensors` reads them. Raises OSError; see `write_hashed`."""
    # The widest types first: every tensor then starts at a multiple of its element's size.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    return write_hashed(path, _parts({name: tensors[name].detach() for name in names}, metadata))


def _parts(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    yield _header(tensors, metadata)
    for tensor in tensors.values():
        yield tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data


def _header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Its own length as 8 bytes, then JSON: where each tensor lies behind the header."""
    entries: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    offset_bytes = 0
    for name, tensor in tensors.items():
        end_bytes = offset_bytes + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": _DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset_bytes, end_bytes],
        }
        offset_bytes = end_bytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    return len(text).to_bytes(8, "little") + text
