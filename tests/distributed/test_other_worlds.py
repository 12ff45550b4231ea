"""A run that resumes with other numbers of workers and other ZeRO stages, killed in between."""

from pathlib import Path

import pytest

from cluster.journal import JournalRecord, read_journal
from pretrain.audit import read_history
from pretrain.config import PretrainConfig
from tests.distributed.workers import Workers, final_state, small_config
from tests.faults.kills import Run

_STEPS = 16


def config(**changes: object) -> PretrainConfig:
    """Four micro-batches a step, a checkpoint every second step."""
    return small_config(
        num_steps=_STEPS, micro_batch_lanes=1, checkpoint={"every_steps": 2}, num_workers=1, **changes
    )


def steps(folder: Path) -> list[JournalRecord]:
    return [record for record in read_journal(folder / "journal.jsonl") if record.kind == "step"]


def trained_in_pieces(prep_folder: Path, folder: Path, pieces: list[tuple[int, PretrainConfig]]) -> str:
    """Each piece is killed at its second new checkpoint, the last one ends; the final state."""
    for world_size, settings in pieces[:-1]:
        run = Run(folder, prep_folder, settings, world_size)
        assert run.kill_at("checkpoint.published:2:0")
    world_size, settings = pieces[-1]
    return Run(folder, prep_folder, settings, world_size).finish()


def test_workers_and_stages_may_change_and_read_the_same_tokens(prep_folder: Path, tmp_path: Path) -> None:
    whole, changed = tmp_path / "whole", tmp_path / "changed"
    Workers(config(precision="fp32"), prep_folder, whole, world_size=1).wait()
    pieces = [(2, config(precision="fp32", zero_stage=stage)) for stage in (2, 3, 0)]
    trained_in_pieces(prep_folder, changed, [*pieces, (1, config(precision="fp32", zero_stage=1))])
    histories = [read_history(read_journal(folder / "journal.jsonl")) for folder in (whole, changed)]
    assert histories[1].problems == []
    assert [made.digest for made in histories[1].steps.values()] == [
        made.digest for made in histories[0].steps.values()
    ]
    losses = [[made.loss for made in history.steps.values()] for history in histories]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp32", marks=pytest.mark.slow)])
def test_deterministic_worlds_and_stages_end_with_the_same_bits(
    prep_folder: Path, tmp_path: Path, precision: str
) -> None:
    def settings(zero_stage: int) -> PretrainConfig:
        return config(precision=precision, deterministic=True, zero_stage=zero_stage)

    whole = tmp_path / "whole"
    Workers(settings(1), prep_folder, whole, world_size=1).wait()
    pieces = [(world_size, settings(stage)) for world_size, stage in ((2, 2), (4, 0), (1, 1), (2, 2))]
    assert trained_in_pieces(prep_folder, tmp_path / "changed", pieces) == final_state(whole, _STEPS)
