"""Rank 0 gathers what all ranks have written with few requests to the file server, however many ranks there are."""

import os
import threading
import time
from pathlib import Path

import pytest

from cluster.storage import write_json
from pretrain.checkpoint.listing import FileEntry
from pretrain.checkpoint.rank_files import SaveError, drop_parts, gather_parts


class Requests:
    """Counts listings of folders and questions for single names, while both are done as ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.listings, self.questions = 0, 0
        listdir, stat = os.listdir, os.stat

        def count_listing(*given: object) -> list[str]:
            self.listings += 1
            return listdir(*given)  # type: ignore[call-overload, no-any-return]

        def count_question(*given: object, **more: object) -> os.stat_result:
            self.questions += 1
            return stat(*given, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(os, "listdir", count_listing)
        monkeypatch.setattr(os, "stat", count_question)


def leave_part(folder: Path, rank: int) -> None:
    write_json(
        folder / f".part-{rank:05d}.json", {f"weights-{rank:05d}": {"bytes": rank, "sha256": "0" * 64}}
    )


def test_a_poll_is_one_listing_for_a_thousand_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(1, 1024):
        leave_part(tmp_path, rank)
    requests = Requests(monkeypatch)
    last = threading.Timer(0.5, leave_part, (tmp_path, 0))
    last.start()
    files = gather_parts(tmp_path, 1024, 60.0, None)
    last.join()
    assert list(files) == [f"weights-{rank:05d}" for rank in range(1024)]
    assert files["weights-00007"] == FileEntry(7, "0" * 64)
    # The pauses grow from 20 ms by a tenth of the time waited.
    assert 2 <= requests.listings <= 0.5 / 0.02
    assert requests.questions < 100
    drop_parts(tmp_path, 1024)
    assert list(tmp_path.iterdir()) == []


def test_a_long_wait_takes_few_listings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour of waiting on a clock that the pauses move: about one listing a second and no more."""
    now_s = 0.0

    def sleep(pause_s: float) -> None:
        nonlocal now_s
        now_s += pause_s

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    requests = Requests(monkeypatch)
    with pytest.raises(SaveError, match="worker 0 has not written its files within 3600 s"):
        gather_parts(tmp_path / "missing", 4, 3600.0, None)
    assert 3600 <= requests.listings <= 3700
    assert now_s == pytest.approx(3600.0)


def test_the_first_rank_that_failed_is_named_once_all_have_ended(tmp_path: Path) -> None:
    leave_part(tmp_path, 0)
    leave_part(tmp_path, 2)
    (tmp_path / ".failed-00001").write_text("disk full")
    (tmp_path / ".failed-00002").write_text("")
    with pytest.raises(SaveError, match="^worker 1: disk full$"):
        gather_parts(tmp_path, 3, 60.0, None)
    (tmp_path / ".failed-00001").unlink()
    leave_part(tmp_path, 1)
    with pytest.raises(SaveError, match="^worker 2: no room to say why$"):
        gather_parts(tmp_path, 3, 60.0, None)


def test_the_own_problem_of_rank_0_is_the_one_that_is_told(tmp_path: Path) -> None:
    leave_part(tmp_path, 1)
    with pytest.raises(SaveError, match="^worker 0: no space$"):
        gather_parts(tmp_path, 2, 60.0, "no space")
