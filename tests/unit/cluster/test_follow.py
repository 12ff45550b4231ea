import threading
from pathlib import Path

import pytest

from cluster.follow import follow_journal
from cluster.journal import Journal, JournalRecord


def test_records_are_shown_while_the_block_runs_and_the_last_at_its_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.step(1, {})
    shown: list[int | None] = []
    seen = threading.Event()

    def show(record: JournalRecord) -> None:
        shown.append(record.step)
        seen.set()

    with follow_journal(tmp_path / "j", show, poll_s=0.01):
        assert seen.wait(timeout=10)
        assert shown == [1]
    with follow_journal(tmp_path / "j", show, poll_s=60, skip_existing=True):
        journal.step(2, {})
        journal.step(3, {})
    assert shown == [1, 2, 3]


def test_a_replaced_journal_is_shown_from_its_beginning(tmp_path: Path) -> None:
    Journal(tmp_path / "j").step(7, {})
    shown: list[int | None] = []
    with follow_journal(
        tmp_path / "j", lambda record: shown.append(record.step), poll_s=60, skip_existing=True
    ):
        Journal(tmp_path / "j", fresh=True).step(1, {})
    assert shown == [1]


def _fail(record: JournalRecord) -> None:
    raise KeyError(record.text)


def test_an_error_in_show_is_raised_after_the_block(tmp_path: Path) -> None:
    done = []

    def work() -> None:
        with follow_journal(tmp_path / "j", _fail, poll_s=0.01):
            journal = Journal(tmp_path / "j")
            journal.event("first")
            journal.event("second")
            done.append("block")

    with pytest.raises(KeyError, match="first"):
        work()
    assert done == ["block"]


def test_an_error_of_the_block_takes_precedence(tmp_path: Path) -> None:
    Journal(tmp_path / "j").event("shown in vain")
    with pytest.raises(ValueError, match="the block's"), follow_journal(tmp_path / "j", _fail, poll_s=0.01):
        raise ValueError("the block's")
    assert not any(thread.name.startswith("follow-") for thread in threading.enumerate())
