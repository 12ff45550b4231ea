"""kill -9 of training processes at every point that matters, and at any moment: the same bits, the books balance."""

import random
import shutil
from pathlib import Path

import pytest

from tests.distributed.workers import final_state
from tests.faults.kills import Run, recorded_points

_DOZEN = (
    "checkpoint.begun:1:1",
    "checkpoint.folder_made:1:0",
    "checkpoint.tensors_torn:1:1",
    "file.written:1:0",
    "checkpoint.tensors_synced:2:0",
    "checkpoint.part_left:1:1",
    "checkpoint.parts_found:1:0",
    "checkpoint.listed:1:0",
    "step.computed:2:1",
    "checkpoint.renamed:1:0",
    "step.updated:1:0",
    "step.recorded:1:0",
)


@pytest.fixture(scope="module")
def untouched(prep_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[str]]:
    """The final state of a run that nobody touched, and the fault points that it came to."""
    folder = tmp_path_factory.mktemp("untouched")
    run = Run(folder / "run", prep_folder)
    points = recorded_points(run, folder / "points")
    assert run.problems() == []
    return final_state(run.folder, run.config.num_steps), points


def test_killed_at_a_dozen_points_one_after_the_other_it_ends_with_the_same_bits(
    untouched: tuple[str, list[str]], prep_folder: Path, tmp_path: Path
) -> None:
    run = Run(tmp_path / "run", prep_folder)
    for point in _DOZEN:
        assert run.kill_at(point), f"{point} was not reached"
    assert run.finish() == untouched[0]
    assert run.problems() == []
    assert run.num_starts_reported() == len(_DOZEN) + 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_at_every_point_it_ends_with_the_same_bits(
    untouched: tuple[str, list[str]], prep_folder: Path, tmp_path: Path
) -> None:
    state, points = untouched
    assert len(points) > 200
    for point in points:
        run = Run(tmp_path / point.replace(":", "-"), prep_folder)
        assert run.kill_at(point), point
        assert run.finish() == state, point
        assert run.problems() == [], point
        # Killed before its first word, an attempt leaves none.
        assert run.num_starts_reported() in (1, 2), point
        shutil.rmtree(run.folder)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(12))
def test_killed_at_random_moments_it_ends_with_the_same_bits(
    untouched: tuple[str, list[str]], prep_folder: Path, tmp_path: Path, seed: int
) -> None:
    """Four kills each, of one worker first or the other."""
    draw = random.Random(seed)
    run = Run(tmp_path / "run", prep_folder)
    num_kills = sum(run.kill_after(draw.uniform(0.05, 1.5), draw.sample([0, 1], 2)) for _ in range(4))
    assert run.finish() == untouched[0]
    assert run.problems() == []
    assert run.num_starts_reported() <= num_kills + 5
