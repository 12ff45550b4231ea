"""Pieces of tensors in files, and tensors, whole or in part, out of the files of all ranks.

A file's safetensors metadata say of each of its entries which tensor it is a piece of, where in it the piece begins
and the whole tensor's shape.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from cluster.errors import UserError, first_line
from cluster.storage import canonical_json
from pretrain.checkpoint.files import FileEntry
from pretrain.checkpoint.tensor_file import write_tensors
from pretrain.engine.pieces import Piece


def write_pieces(path: Path, pieces: Mapping[str, Iterable[Piece]]) -> FileEntry:
    """Write pieces by the prefix of their tensors' names ("" for none), empty ones left out.

    Raises OSError; see `write_hashed`.
    """
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
    """`length` elements of a tensor from `start` on, under `key` in an open file."""

    start: int
    length: int
    file: Any
    key: str


class StoredTensors:
    """Tensors of several piece files, which are mapped into memory; what is asked for is put together then."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Raises UserError when a file cannot be read or pieces do not cover their tensors exactly once."""
        self.shapes: dict[str, tuple[int, ...]] = {}
        """By tensor name."""
        self._pieces: dict[str, list[_StoredPiece]] = {}
        for path in paths:
            try:
                self._add(path)
            except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
                raise UserError(
                    f"{path} is damaged ({first_line(error)}): restore it or use another checkpoint"
                ) from None
        for name, pieces in self._pieces.items():
            pieces.sort(key=lambda piece: piece.start)
            self._check_cover(name, pieces)

    def tensor(self, name: str) -> Tensor:
        """A copy of its own. KeyError when there is none of that name."""
        return self.part(name, 0, math.prod(self.shapes[name])).reshape(self.shapes[name])

    def part(self, name: str, start: int, stop: int) -> Tensor:
        """A copy of elements [start, stop) of the flattened tensor, of which there must be some.

        KeyError when there is none of that name.
        """
        assert 0 <= start < stop <= math.prod(self.shapes[name]), f"{name} has no elements {start} to {stop}"
        parts = []
        for piece in self._pieces[name]:
            first, last = (
                max(start, piece.start) - piece.start,
                min(stop, piece.start + piece.length) - piece.start,
            )
            if first < last:
                parts.append(piece.file.get_slice(piece.key)[first:last])
        return torch.cat(parts)

    def _add(self, path: Path) -> None:
        file: Any = safe_open(path, framework="pt")
        for key, text in (file.metadata() or {}).items():
            told = json.loads(text)
            name, shape = str(told["tensor"]), tuple(int(size) for size in told["shape"])
            if self.shapes.setdefault(name, shape) != shape:
                raise ValueError(f"{name} has shape {shape} here and {self.shapes[name]} elsewhere")
            (length,) = file.get_slice(key).get_shape()
            self._pieces.setdefault(name, []).append(_StoredPiece(int(told["start"]), length, file, key))

    def _check_cover(self, name: str, pieces: list[_StoredPiece]) -> None:
        end = 0
        for piece in pieces:
            if piece.start != end:
                fault = "is missing" if piece.start > end else "is there twice"
                raise UserError(_uncovered(name, min(end, piece.start), fault))
            end += piece.length
        if end != (numel := math.prod(self.shapes[name])):
            raise UserError(_uncovered(name, min(end, numel), "is missing" if end < numel else "is too much"))


def _uncovered(name: str, element: int, fault: str) -> str:
    return f"the checkpoint's pieces do not fit: element {element} of {name} {fault}; use another checkpoint"
