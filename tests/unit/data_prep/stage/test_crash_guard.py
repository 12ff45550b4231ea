"""A file that kills its worker is told from one that a killed run was just reading."""

from pathlib import Path

from data_prep.crash_guard import CrashGuard


def die_at(output: Path, item: int, run_id: str) -> bool:
    """Begin work on the items up to `item` and die; returns whether `item` was tried at all."""
    guard = CrashGuard(output, run_id)
    guard.__enter__()
    return [guard.enter(number) for number in range(item + 1)][-1]


def test_the_fourth_attempt_passes_over_what_killed_three(tmp_path: Path) -> None:
    output = tmp_path / "read.arrow"
    assert [die_at(output, 5, "run") for _ in range(4)] == [True, True, True, False]


def test_progress_between_deaths_starts_the_count_anew(tmp_path: Path) -> None:
    output = tmp_path / "read.arrow"
    assert [die_at(output, item, "run") for item in (5, 5, 6, 5, 5, 5)] == [True] * 6


def test_deaths_of_other_runs_do_not_count(tmp_path: Path) -> None:
    output = tmp_path / "read.arrow"
    assert all(die_at(output, 5, f"run{number}") for number in range(6))


def test_a_finished_task_leaves_no_note(tmp_path: Path) -> None:
    with CrashGuard(tmp_path / "read.arrow", "run") as guard:
        assert guard.enter(0)
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_a_damaged_note_counts_nothing(tmp_path: Path) -> None:
    (tmp_path / ".read.arrow.at").write_bytes(b"\xff\x00 half")
    with CrashGuard(tmp_path / "read.arrow", "run") as guard:
        assert guard.enter(0)
