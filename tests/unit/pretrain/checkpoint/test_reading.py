"""The digest of a state: one for all worlds, another for every other state."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pretrain.checkpoint.reading import state_digest
from pretrain.checkpoint.snapshot import Snapshot
from pretrain.checkpoint.writer import CheckpointWriter
from pretrain.config import CheckpointConfig
from pretrain.engine.pieces import EnginePieces
from pretrain.model.segment_memory import SegmentMemory
from tests.checkpoints import STATIC, TOKEN, fail_on_warning, snapshot_of, write_checkpoint


def test_the_digest_does_not_depend_on_who_wrote_the_checkpoint(tmp_path: Path) -> None:
    digests = {
        state_digest(write_checkpoint(tmp_path / str(world_size), 5, world_size=world_size))
        for world_size in (1, 2, 3, 4)
    }
    assert len(digests) == 1
    # Values that are no part of the training state do not count.
    assert state_digest(write_checkpoint(tmp_path / "noted", 5, state={"note": "other"})) in digests


def _other_weight(snapshot: Snapshot) -> Snapshot:
    masters = list(snapshot.pieces.masters)
    values = masters[-1].values_X.clone()
    values[-1] = torch.nextafter(values[-1], torch.tensor(9.0))
    masters[-1] = replace(masters[-1], values_X=values)
    return replace(snapshot, pieces=replace(snapshot.pieces, masters=tuple(masters)))


def _moments_exchanged(snapshot: Snapshot) -> Snapshot:
    moments = snapshot.pieces.moments
    exchanged = {"exp_avg": moments["exp_avg_sq"], "exp_avg_sq": moments["exp_avg"]}
    return replace(snapshot, pieces=EnginePieces(snapshot.pieces.masters, exchanged, 5))


def _lanes_exchanged(snapshot: Snapshot) -> Snapshot:
    memory = snapshot.memory
    flipped = SegmentMemory(
        tuple(layer.flip(0) for layer in memory.layers_BMD), memory.group_BM, memory.document_BM
    )
    return replace(snapshot, memory=flipped)


def _other_group(snapshot: Snapshot) -> Snapshot:
    memory = snapshot.memory
    return replace(snapshot, memory=SegmentMemory(memory.layers_BMD, memory.group_BM + 1, memory.document_BM))


@pytest.mark.parametrize(
    "change",
    [
        _other_weight,
        _moments_exchanged,
        _lanes_exchanged,
        _other_group,
        lambda snapshot: replace(snapshot, cursor=snapshot.cursor + 1),
        lambda snapshot: replace(snapshot, pieces=replace(snapshot.pieces, adam_steps=4)),
    ],
)
def test_another_state_has_another_digest(tmp_path: Path, change: Callable[[Snapshot], Snapshot]) -> None:
    found = []
    for name, snapshot in (("one", snapshot_of(5)), ("other", change(snapshot_of(5)))):
        writer = CheckpointWriter(tmp_path / name, 0, 1, CheckpointConfig(), fail_on_warning)
        writer.begin(snapshot, TOKEN, STATIC, "cadence")
        assert writer.wait(60)
        found.append(state_digest(tmp_path / name / "step-00000005"))
    assert found[0] != found[1]
