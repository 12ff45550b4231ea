"""Which checkpoints stay: the newest, the milestones, the best; damaged ones count for nothing."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.storage import read_document, write_document
from pretrain.checkpoint.listing import step_name, step_of
from pretrain.checkpoint.rank_files import temporary_folder
from pretrain.checkpoint.retention import (
    best,
    discard_newer,
    remove_checkpoint,
    remove_unfinished,
    superseded_checkpoints,
)
from pretrain.config import CheckpointConfig
from tests.checkpoints import write_checkpoint


def make_checkpoints(checkpoints: Path, bits_per_byte: dict[int, float | None]) -> None:
    """As far as retention looks at them."""
    for step, bits in bits_per_byte.items():
        folder = checkpoints / step_name(step)
        folder.mkdir()
        state = "{}" if bits is None else f'{{"validation_bits_per_byte": {bits}}}'
        (folder / "state.json").write_text(state)


def write_two(checkpoints: Path) -> None:
    for step in (1, 2):
        write_checkpoint(checkpoints, step)


def left(checkpoints: Path, keep: CheckpointConfig, newest: int, damaged: frozenset[int]) -> set[int]:
    superseded = superseded_checkpoints(checkpoints, keep, newest, damaged)
    assert superseded == sorted(superseded)
    steps = {step_of(path) or 0 for path in checkpoints.iterdir()}
    return steps - {step_of(path) or 0 for path in superseded}


@pytest.mark.parametrize(
    ("keep", "damaged", "stay"),
    [
        (CheckpointConfig(keep=2, keep_best=False), set(), {50, 60}),
        (CheckpointConfig(keep=2, keep_best=True), set(), {20, 50, 60}),
        (CheckpointConfig(keep=1, keep_best=True, keep_every_steps=30), set(), {20, 30, 60}),
        (CheckpointConfig(keep=2, keep_best=True), {20, 50}, {30, 40, 60}),
        (CheckpointConfig(keep=9, keep_best=False), {10}, {20, 30, 40, 50, 60}),
    ],
)
def test_the_newest_the_milestones_and_the_best_stay(
    tmp_path: Path, keep: CheckpointConfig, damaged: set[int], stay: set[int]
) -> None:
    make_checkpoints(tmp_path, {10: None, 20: 2.0, 30: 2.25, 40: 2.5, 50: None, 60: 3.0})
    assert left(tmp_path, keep, 60, frozenset(damaged)) == stay


def test_later_checkpoints_are_left_alone_and_count_for_nothing(tmp_path: Path) -> None:
    make_checkpoints(tmp_path, {10: 2.0, 20: 2.5, 30: 2.75, 40: 1.0})
    assert left(tmp_path, CheckpointConfig(keep=1), 30, frozenset({40})) == {10, 30, 40}


@given(
    bits=st.dictionaries(
        st.integers(1, 40), st.none() | st.floats(0.5, 8.0, allow_nan=False), min_size=1, max_size=8
    ),
    keep=st.integers(1, 4),
    every=st.integers(0, 5),
    keep_best=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_a_run_always_keeps_what_it_promised(
    tmp_path_factory: pytest.TempPathFactory,
    bits: dict[int, float | None],
    keep: int,
    every: int,
    keep_best: bool,
) -> None:
    checkpoints = tmp_path_factory.mktemp("checkpoints")
    make_checkpoints(checkpoints, bits)
    config = CheckpointConfig(keep=keep, keep_every_steps=every, keep_best=keep_best)
    stay = left(checkpoints, config, max(bits), frozenset())
    known = {step: value for step, value in bits.items() if value is not None}
    wanted = set(sorted(bits)[-keep:])
    wanted |= {step for step in bits if every and step % every == 0}
    if keep_best and known:
        wanted.add(max(step for step in known if known[step] == min(known.values())))
    assert stay == wanted


def test_writers_remove_what_is_superseded(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        write_checkpoint(tmp_path, step, keep=CheckpointConfig(keep=2), state={"seed": 0})
    assert sorted(os.listdir(tmp_path)) == ["step-00000003", "step-00000004"]


def test_removing_continues_where_a_kill_interrupted_it(tmp_path: Path) -> None:
    make_checkpoints(tmp_path, {1: None})
    (tmp_path / f".{step_name(1)}.old.tmp").mkdir()
    remove_checkpoint(tmp_path / step_name(1))
    assert os.listdir(tmp_path) == []


def test_checkpoints_after_a_step_can_be_discarded(tmp_path: Path) -> None:
    write_two(tmp_path / "checkpoints")
    assert discard_newer(tmp_path / "checkpoints", 1) == ["step-00000002"]
    assert os.listdir(tmp_path / "checkpoints") == ["step-00000001"]
    assert discard_newer(tmp_path / "checkpoints", 1) == []


def test_what_kills_left_is_cleared_and_nothing_else(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    write_two(checkpoints)
    unfinished = temporary_folder(checkpoints, 3, "attempt")
    unfinished.mkdir()
    (unfinished / "weights-00000.safetensors").write_bytes(b"half")
    (checkpoints / ".step-00000001.old.tmp").mkdir()
    remove_unfinished(checkpoints)
    assert sorted(os.listdir(checkpoints)) == ["step-00000001", "step-00000002"]
    remove_unfinished(tmp_path / "nothing")


def test_the_best_checkpoint_has_the_fewest_bits_per_byte(tmp_path: Path) -> None:
    assert best(tmp_path) is None
    for step, bits in enumerate([None, 3.0, 2.5, float("nan"), 2.5, 2.75], start=1):
        folder = write_checkpoint(tmp_path, step)
        if bits is not None:
            state = read_document(folder / "state.json") | {"validation_bits_per_byte": bits}
            write_document(folder / "state.json", state)
    assert best(tmp_path) == tmp_path / "step-00000005"
