"""Checkpoints for tests, written as ranks of any number would: here each rank's writer lives in the same process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cluster.journal import Level
from pretrain.checkpoint.compatibility import RunIdentity
from pretrain.checkpoint.listing import step_name
from pretrain.checkpoint.snapshot import Snapshot, StaticFiles
from pretrain.checkpoint.writer import CheckpointWriter
from pretrain.config import CheckpointConfig, PretrainConfig
from pretrain.engine.pieces import MOMENTS, EnginePieces, Piece
from pretrain.journal.events import Event
from pretrain.model.config import ModelConfig
from pretrain.model.segment_memory import SegmentMemory
from pretrain.weights import ModelDescription

IDENTITY = RunIdentity(PretrainConfig(num_steps=1000), seed=0, corpus="c" * 64, tokenizer="t" * 64)
STATIC = StaticFiles.of_pretraining(IDENTITY, ModelDescription(ModelConfig(), 512, 256), tokenizer=b"{}")
TOKEN = "attempt"


def weights_of(step: int) -> dict[str, Tensor]:
    """Small weights that say of which step they are."""
    generator = torch.Generator().manual_seed(step)
    shapes = {"embedding": (7, 4), "norm.bias": (5,), "block.weight": (3, 2, 2), "scale": (1,)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def pieces_of(weights: Mapping[str, Tensor], rank: int, world_size: int, adam_steps: int) -> EnginePieces:
    """What a rank holds when all parameters stand in one line that is cut into equal parts, as ZeRO cuts them."""
    total = sum(weight.numel() for weight in weights.values())
    low, high = (total * number // world_size for number in (rank, rank + 1))
    first, pieces = 0, []
    for name, weight in weights.items():
        start, end = max(low - first, 0), min(high - first, weight.numel())
        if start < end:
            values = weight.detach().reshape(-1)[start:end].clone()
            pieces.append(Piece(name, tuple(weight.shape), start, values))
        first += weight.numel()
    moments = {
        kind: tuple(Piece(piece.name, piece.shape, piece.start, piece.values_X * factor) for piece in pieces)
        for kind, factor in zip(MOMENTS, (0.5, 0.25), strict=True)
    }
    return EnginePieces(tuple(pieces), moments, adam_steps)


def memory_of(lanes: range, step: int) -> SegmentMemory:
    """Memory in which every lane says which it is and of which step."""
    lane_B11 = torch.tensor(list(lanes)).reshape(-1, 1, 1)
    layer_BMD = (lane_B11 + step / 8 + torch.zeros(len(lanes), 3, 4)).to(torch.bfloat16)
    group_BM = lane_B11[:, :, 0] * 100 + torch.arange(3)
    return SegmentMemory((layer_BMD, layer_BMD + 1), group_BM, group_BM + 1)


def snapshot_of(
    step: int,
    rank: int = 0,
    world_size: int = 1,
    num_lanes: int = 4,
    weights: Mapping[str, Tensor] | None = None,
    state: dict[str, Any] | None = None,
) -> Snapshot:
    """A rank's share of the state after `step` steps."""
    lanes = range(num_lanes * rank // world_size, num_lanes * (rank + 1) // world_size)
    pieces = pieces_of(weights or weights_of(step), rank, world_size, step)
    return Snapshot(step, step + 2, pieces, memory_of(lanes, step), lanes.start, state or {"seed": 0})


def write_checkpoint(
    checkpoints: Path,
    step: int,
    *,
    world_size: int = 1,
    static: StaticFiles = STATIC,
    keep: CheckpointConfig | None = None,
    **snapshot: Any,
) -> Path:
    """Write the checkpoint of a step as `world_size` ranks, without any warning. `snapshot` is as for `snapshot_of`."""
    writers = [
        CheckpointWriter(checkpoints, rank, world_size, keep or CheckpointConfig(keep=100), fail_on_warning)
        for rank in range(world_size)
    ]
    begin_all(writers, step, static, **snapshot)
    for writer in writers:
        assert writer.wait(60)
    return checkpoints / step_name(step)


def begin_all(
    writers: list[CheckpointWriter], step: int, static: StaticFiles = STATIC, **snapshot: Any
) -> None:
    """Set the writers of all ranks to work on the checkpoint of a step, the last rank first."""
    for rank in reversed(range(len(writers))):
        begin_one(writers[rank], step, rank, len(writers), static, **snapshot)


def begin_one(
    writer: CheckpointWriter,
    step: int,
    rank: int,
    world_size: int,
    static: StaticFiles = STATIC,
    **snapshot: Any,
) -> float:
    """Set one rank's writer to work; the seconds it waited for the checkpoint before."""
    own = snapshot_of(step, rank, world_size, **snapshot)
    return writer.begin(own, TOKEN, static if rank == 0 else None, "cadence")


def fail_on_warning(text: str, event: Event, level: Level) -> None:
    """For what goes well."""
    assert level == "info", text
