"""A file that kills its worker is told from one that a killed run was just reading."""

from pathlib import Path

from data_prep.crash_guard import CrashGuard


def die_at(output: Path, killers: set[int], run_id: str = "run", num_items: int = 10) -> list[int] | None:
    """Work on the items and die at the first killer that is tried: None; else the items passed over."""
    guard = CrashGuard(output, run_id)
    guard.__enter__()
    passed_over = []
    for item in range(num_items):
        if not guard.begin(item):
            passed_over.append(item)
        elif item in killers:
            return None
        guard.end()
    return passed_over


def test_what_killed_three_attempts_is_passed_over(tmp_path: Path) -> None:
    output = tmp_path / "read.arrow"
    assert [die_at(output, {5}) for _ in range(4)] == [None, None, None, [5]]


def test_several_killers_are_passed_one_after_the_other(tmp_path: Path) -> None:
    output = tmp_path / "read.arrow"
    assert [die_at(output, {3, 7}) for _ in range(7)] == [None] * 6 + [[3, 7]]


def test_a_killer_once_found_out_is_passed_over_in_later_runs(tmp_path: Path) -> None:
    output = tmp_path / "read.arrow"
    for _ in range(4):
        die_at(output, {3, 7}, "first")
    assert [die_at(output, {3, 7}, "second") for _ in range(4)] == [None] * 3 + [[3, 7]]


def test_deaths_between_two_items_are_nobodys_fault(tmp_path: Path) -> None:
    output = tmp_path / "read.arrow"
    assert all(die_at(output, set(), num_items=5) == [] for _ in range(6))


def test_deaths_of_other_runs_do_not_count(tmp_path: Path) -> None:
    output = tmp_path / "read.arrow"
    assert all(die_at(output, {5}, f"run{number}") is None for number in range(6))


def test_a_finished_task_leaves_no_note(tmp_path: Path) -> None:
    with CrashGuard(tmp_path / "read.arrow", "run") as guard:
        assert guard.begin(0)
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_a_damaged_note_counts_nothing(tmp_path: Path) -> None:
    (tmp_path / ".read.arrow.at").write_bytes(b"\xff\x00 half")
    with CrashGuard(tmp_path / "read.arrow", "run") as guard:
        assert guard.begin(0)
