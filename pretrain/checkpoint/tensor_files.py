"""The tensor files of a checkpoint: written and hashed in one pass, and read whole or in part.

A file holds pieces of tensors. The safetensors metadata of an entry name the tensor it is a piece of, where in it the
piece begins and the whole tensor's shape. The files of all ranks together hold every tensor.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from cluster.errors import UserError, first_line
from cluster.fault_points import fault_point
from cluster.storage import canonical_json
from pretrain.checkpoint.listing import FileEntry
from pretrain.engine.pieces import Piece

_CHUNK_BYTES = 4 << 20
"""Small enough to be hashed while it is still in the processor's cache."""


def write_hashed(path: Path, parts: Iterable[bytes | memoryview]) -> FileEntry:
    """Write `parts` one after the other, hash them on the way and sync the file to disk.

    Raises OSError. A kill leaves a partial file, so the folder must not be a checkpoint yet.
    """
    digest, size_bytes = hashlib.sha256(), 0
    with path.open("wb", buffering=0) as file:
        fault_point("checkpoint.tensors_opened")
        for number, part in enumerate(parts):
            data = memoryview(part)
            for start in range(0, len(data), _CHUNK_BYTES):
                chunk = data[start : start + _CHUNK_BYTES]
                _write_whole(file.fileno(), chunk)
                digest.update(chunk)
                size_bytes += len(chunk)
            if number == 0:
                fault_point("checkpoint.tensors_torn")
        fault_point("checkpoint.tensors_written")
        os.fsync(file.fileno())
    fault_point("checkpoint.tensors_synced")
    return FileEntry(size_bytes, digest.hexdigest())


def _write_whole(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


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
    """Write tensors in CPU memory as a safetensors file, without a second copy of them. Raises OSError."""
    # The widest types first: every tensor then starts at a multiple of its element's size.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    return write_hashed(path, _parts({name: tensors[name].detach() for name in names}, metadata))


def _parts(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    yield _header(tensors, metadata)
    for tensor in tensors.values():
        yield tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data


def _header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Return safetensors' header: the JSON's length in 8 bytes, then JSON with each tensor's place behind it."""
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


def write_pieces(path: Path, pieces: Mapping[str, Iterable[Piece]]) -> FileEntry:
    """Write all pieces that are not empty; the keys of `pieces` are prefixes of the tensors' names. Raises OSError."""
    tensors, metadata = {}, {}
    for prefix, several in pieces.items():
        for piece in several:
            if not len(piece.values_X):
                continue
            key = f"{prefix}{piece.name}:{piece.start}"
            tensors[key] = piece.values_X
            metadata[key] = canonical_json(
                {"tensor": prefix + piece.name, "start": piece.start, "shape": piece.shape}
            )
    return write_tensors(path, tensors, metadata)


@dataclass(frozen=True)
class _StoredPiece:
    """`length` elements of a tensor from `start` on, under `key` in a file."""

    start: int
    length: int
    path: Path
    key: str


class StoredTensors:
    """The tensors in the pieces of several memory-mapped files; they are joined on access.

    One process may read where the pieces are and send that to others, pickled: these open only files that they need.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        """Read where in the files the pieces are.

        Raises UserError when a file is damaged or pieces do not cover their tensors exactly once.
        """
        self.shapes: dict[str, tuple[int, ...]] = {}
        """Shapes by tensor name."""
        self._pieces: dict[str, list[_StoredPiece]] = {}
        self._opened: dict[Path, Any] = {}
        for path in paths:
            try:
                self._add(path)
            except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
                raise _damaged(path, error) from None
        for name, pieces in self._pieces.items():
            pieces.sort(key=lambda piece: piece.start)
            self._check_cover(name, pieces)

    def tensor(self, name: str) -> Tensor:
        """Return a copy of the whole tensor. Raises KeyError when there is none of that name."""
        return self.part(name, 0, math.prod(self.shapes[name])).reshape(self.shapes[name])

    def part(self, name: str, start: int, stop: int) -> Tensor:
        """Return a copy of elements [start, stop) of the flattened tensor; the range must not be empty.

        Raises KeyError when there is no tensor of that name, UserError when a file cannot be read.
        """
        assert 0 <= start < stop <= math.prod(self.shapes[name]), f"{name} has no elements {start} to {stop}"
        parts = []
        for piece in self._pieces[name]:
            first, last = (
                max(start, piece.start) - piece.start,
                min(stop, piece.start + piece.length) - piece.start,
            )
            if first < last:
                parts.append(self._read(piece, first, last))
        return torch.cat(parts)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the mapped files out of what is pickled."""
        return self.__dict__ | {"_opened": {}}

    def _read(self, piece: _StoredPiece, first: int, last: int) -> Any:
        try:
            return self._open(piece.path).get_slice(piece.key)[first:last]
        except (SafetensorError, OSError) as error:
            raise _damaged(piece.path, error) from None

    def _open(self, path: Path) -> Any:
        if path not in self._opened:
            self._opened[path] = safe_open(path, framework="pt")
        return self._opened[path]

    def _add(self, path: Path) -> None:
        file = self._open(path)
        for key, text in (file.metadata() or {}).items():
            entry = json.loads(text)
            name, shape = str(entry["tensor"]), tuple(int(size) for size in entry["shape"])
            if self.shapes.setdefault(name, shape) != shape:
                raise ValueError(f"{name} has shape {shape} here and {self.shapes[name]} elsewhere")
            (length,) = file.get_slice(key).get_shape()
            self._pieces.setdefault(name, []).append(_StoredPiece(int(entry["start"]), length, path, key))

    def _check_cover(self, name: str, pieces: list[_StoredPiece]) -> None:
        end = 0
        for piece in pieces:
            if piece.start != end:
                fault = "is missing" if piece.start > end else "is there twice"
                raise UserError(_uncovered(name, min(end, piece.start), fault))
            end += piece.length
        if end != (numel := math.prod(self.shapes[name])):
            raise UserError(_uncovered(name, min(end, numel), "is missing" if end < numel else "is too much"))


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} is damaged ({first_line(error)}): restore it or use another checkpoint")


def _uncovered(name: str, element: int, fault: str) -> str:
    return f"the checkpoint's pieces do not fit: element {element} of {name} {fault}; use another checkpoint"
