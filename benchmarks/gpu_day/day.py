"""What every part of `benchmarks.gpu_day` is given, and where it writes: rows of tables, saved at once."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from pretrain.model.config import ModelConfig

DeviceName = Literal["cuda", "cpu"]
NO_USE = "shows that the program works, measures nothing of use"
_SHARE_OF_TIME = 0.85
"""A part stops by itself after this share of the time after which it is ended."""


@dataclass(frozen=True)
class StepShape:
    """The segments of a training step: L tokens, a memory of M, so many lanes."""

    segment_tokens: int
    memory_tokens: int
    lanes: int

    def __str__(self) -> str:
        return f"L = {self.segment_tokens}, M = {self.memory_tokens}"


@dataclass(frozen=True)
class Scale:
    """The sizes that are measured."""

    name: str
    model: Mapping[str, Any]
    """The recipe's `pretrain.model`, without memory."""
    vocab_size: int
    target_share: float
    steps: tuple[StepShape, ...]
    """The first one is that of the targets."""
    kernel_tokens: int
    """Tokens of all lanes in one call of an attention."""
    kernel_lengths: tuple[int, ...]
    """L of attention calls; the first one is that of the target."""
    memory_lengths: tuple[int, ...]
    error_lengths: tuple[int, int]
    """L and M of the problem whose errors are compared."""
    contexts: tuple[int, ...]
    generated_lanes: tuple[int, ...]
    new_tokens: int

    @property
    def head_dim(self) -> int:
        """H."""
        return int(self.model["head_dim"])

    def config(self, memory_tokens: int, dropout: bool = True) -> ModelConfig:
        """Return the recipe's model with that memory, with its dropout or none."""
        changes = {} if dropout else {"dropout": 0.0, "attention_dropout": 0.0}
        return ModelConfig.model_validate({**self.model, **changes, "memory_tokens": memory_tokens})


_BASE = {
    "num_layers": 12,
    "model_dim": 768,
    "num_heads": 12,
    "head_dim": 64,
    "ffn_dim": 3072,
    "segment_encodings": True,
    "norm_epsilon": 1e-12,
    "dropout": 0.1,
    "attention_dropout": 0.1,
}
_TINY = {**_BASE, "num_layers": 2, "model_dim": 32, "num_heads": 1, "head_dim": 16, "ffn_dim": 64}
SCALES = {
    scale.name: scale
    for scale in (
        Scale(
            "base",
            _BASE,
            vocab_size=32_000,
            target_share=0.5,
            steps=(StepShape(1024, 512, 16), StepShape(512, 384, 32), StepShape(512, 0, 32)),
            kernel_tokens=8192,
            kernel_lengths=(1024, 8192, 4096, 2048, 512),
            memory_lengths=(512, 1024, 2048, 4096, 8192),
            error_lengths=(512, 256),
            contexts=(512, 2048),
            generated_lanes=(1, 8, 32),
            new_tokens=64,
        ),
        Scale(
            "tiny",
            _TINY,
            vocab_size=67,
            target_share=0.5,
            steps=(StepShape(16, 8, 1), StepShape(8, 0, 1)),
            kernel_tokens=64,
            kernel_lengths=(32, 64),
            memory_lengths=(16, 32),
            error_lengths=(24, 8),
            contexts=(20,),
            generated_lanes=(1, 2),
            new_tokens=4,
        ),
    )
}


@dataclass
class Day:
    """One part's part of the day."""

    folder: Path
    part: str
    device_name: DeviceName
    scale: Scale
    limit_s: float
    """The part is ended after this."""
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    started_s: float = field(default_factory=time.perf_counter)

    @property
    def device(self) -> torch.device:
        """Where everything runs."""
        return torch.device(self.device_name)

    @property
    def has_gpu(self) -> bool:
        """Whether something is measured at all."""
        return self.device_name == "cuda"

    def left_s(self) -> float:
        """Return how much of the time that this part may use is left."""
        return _SHARE_OF_TIME * self.limit_s - (time.perf_counter() - self.started_s)

    def has_time(self, needed_s: float, what: str) -> bool:
        """Return whether so much time is left; if not, note what is left out."""
        if self.left_s() >= needed_s:
            return True
        self.note(f"left out for lack of time: {what}")
        return False

    def add(self, table: str, row: dict[str, Any]) -> None:
        """Add a row to a table, print it and save all; columns have the order of the first row."""
        print(f"{table}: {row}", flush=True)
        self.tables.setdefault(table, []).append(row)
        self.save()

    def note(self, line: str) -> None:
        """Add a line of text below the tables."""
        print(line, flush=True)
        self.notes.append(line)
        self.save()

    def save(self) -> None:
        """Write the part's file, atomically."""
        content = {
            "part": self.part,
            "device": device_line(self.device),
            "size": self.scale.name,
            "measures": "times, memory and errors" if self.has_gpu else NO_USE,
            "tables": self.tables,
            "notes": self.notes,
        }
        write_json(self.folder / f"{self.part}.json", content)


def write_json(path: Path, content: Any) -> None:
    """Write a file that others may read at any moment."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def device_line(device: torch.device) -> str:
    """Return the device and what runs on it in one line."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"no GPU: {NO_USE}"
    try:
        from triton import __version__ as triton_version
    except ImportError:
        triton_version = "none"
    return f"{name}; torch {torch.__version__}, triton {triton_version}"
