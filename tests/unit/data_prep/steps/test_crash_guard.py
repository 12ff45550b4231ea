"""A file that crashes its worker is distinguished from one that a killed run was reading."""

from pathlib import Path

from data_prep.steps.reading import CrashGuard


def die_at(output: Path, killers: set[int], run_id: str = "run", num_items: int = 10) -> list[int] | None:
    """Work on the items; return None at the first item that crashes, else the skipped items."""
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


def test_an_item_that_crashed_three_attempts_is_skipped(tmp_path: Path) -> None:
    output = tmp_path / "read.arrow"
    assert [die_at(output, {5}) for _ in range(4)] == [None, None, None, [5]]


def test_several_crashing_items_are_skipped_one_after_the_other(tmp_path: Path) -> None:
    output = tmp_path / "read.arrow"
    assert [die_at(output, {3, 7}) for _ in range(7)] == [None] * 6 + [[3, 7]]


def test_a_crashing_item_is_skipped_in_later_runs(tmp_path: Path) -> None:
    output = tmp_path / "read.arrow"
    for _ in range(4):
        die_at(output, {3, 7}, "first")
    assert [die_at(output, {3, 7}, "second") for _ in range(4)] == [None] * 3 + [[3, 7]]


def test_crashes_between_two_items_do_not_count(tmp_path: Path) -> None:
    output = tmp_path / "read.arrow"
    assert all(die_at(output, set(), num_items=5) == [] for _ in range(6))


def test_crashes_of_other_runs_do_not_count(tmp_path: Path) -> None:
    output = tmp_path / "read.arrow"
    assert all(die_at(output, {5}, f"run{number}") is None for number in range(6))


def test_a_finished_task_leaves_no_record(tmp_path: Path) -> None:
    with CrashGuard(tmp_path / "read.arrow", "run") as guard:
        assert guard.begin(0)
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_a_damaged_record_is_ignored(tmp_path: Path) -> None:
    (tmp_path / ".read.arrow.at").write_bytes(b"\xff\x00 half")
    with CrashGuard(tmp_path / "read.arrow", "run") as guard:
        assert guard.begin(0)
