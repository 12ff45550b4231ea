import errno
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import UserError
from cluster.journal import Journal, JournalTail, read_journal

WRITER = """
import sys
from pathlib import Path
from cluster.journal import Journal
journal = Journal(Path(sys.argv[1]))
for step in range(500):
    journal.step(step, {"writer": float(sys.argv[2]), "filler": 1 / 3})
"""


def test_steps_and_events_come_back_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "new" / "journal.jsonl")
    journal.step(1, {"loss": 2.5, "bad": math.nan})
    journal.event("resumed at step 1\nsecond line", level="warning")
    journal.close()
    journal.close()
    step, event = read_journal(tmp_path / "new" / "journal.jsonl")
    assert (step.kind, step.step, step.metrics["loss"]) == ("step", 1, 2.5)
    assert math.isnan(step.metrics["bad"])
    assert (event.kind, event.text, event.level) == ("event", "resumed at step 1\nsecond line", "warning")
    assert 0 <= event.time_s - step.time_s < 60


def test_missing_journal_is_empty(tmp_path: Path) -> None:
    assert read_journal(tmp_path / "none") == []
    assert JournalTail(tmp_path / "none").new_records() == []


@given(cut=st.integers(min_value=1, max_value=60))
def test_torn_last_line_is_ignored_and_does_not_spoil_the_next(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    journal = Journal(path)
    journal.step(1, {"loss": 1.0})
    journal.step(2, {"loss": 2.0})
    journal.close()
    path.write_bytes(path.read_bytes()[:-cut])
    assert [record.step for record in read_journal(path)] == [1]
    resumed = Journal(path)
    resumed.step(3, {"loss": 3.0})
    resumed.close()
    steps = [record.step for record in read_journal(path)]
    # A cut of exactly the newline leaves a whole record, which the next line's newline ends.
    assert steps == ([1, 2, 3] if cut == 1 else [1, 3])


def test_tail_gives_each_record_once_and_waits_for_the_newline(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    tail = JournalTail(path)
    journal = Journal(path)
    journal.step(1, {})
    assert [record.step for record in tail.new_records()] == [1]
    before = path.read_bytes()
    journal.step(2, {})
    journal.close()
    line = path.read_bytes().removeprefix(before)
    path.write_bytes(before)
    with path.open("ab") as file:
        file.write(line[:10])
        file.flush()
        assert tail.new_records() == []
        file.write(line[10:])
    assert [record.step for record in tail.new_records()] == [2]
    assert tail.new_records() == []


def test_concurrent_writers_never_mix_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, str(number)]) for number in range(3)]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    records = read_journal(path)
    assert len(records) == 1500
    for number in range(3):
        assert [r.step for r in records if r.metrics["writer"] == number] == list(range(500))


@pytest.mark.parametrize("way", ["fresh", "unlinked", "shortened"])
def test_tail_reads_a_journal_begun_anew_from_its_beginning(tmp_path: Path, way: str) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.step(1, {"loss": 1.0})
    journal.step(2, {"loss": 2.0})
    tail = JournalTail(path)
    assert len(tail.new_records()) == 2
    journal.close()
    if way == "unlinked":
        path.unlink()
    if way == "shortened":
        path.write_bytes(b"")
    again = Journal(path, fresh=way == "fresh")
    assert read_journal(path) == []
    # As long as the old one: only what it says shows that it is another journal.
    again.step(11, {"loss": 1.0})
    again.step(12, {"loss": 2.0})
    assert [record.step for record in tail.new_records()] == [11, 12]
    again.step(13, {})
    assert [record.step for record in tail.new_records()] == [13]
    again.close()


def written(path: Path, attempts: int = 2) -> list[bytes]:
    """The lines of a journal that several attempts wrote; between them a kill tore a line."""
    for attempt in range(attempts):
        journal = Journal(path)
        journal.event("begins", name="attempt", attempt=attempt)
        for step in range(1, 5):
            journal.step(step, {"loss": 2.5 / step}, {"cursor": step, "applied": True})
        journal.close()
        if attempt < attempts - 1:
            path.write_bytes(path.read_bytes() + b'{"kind":"step","time_s":17')
    return path.read_bytes().splitlines(keepends=True)


def test_no_changed_byte_of_a_whole_line_is_read(tmp_path: Path) -> None:
    """One bit of every byte, also of the last newline: a kill tears a line before it, and leaves nothing after it."""
    path = tmp_path / "journal.jsonl"
    data = b"".join(written(path))
    records = read_journal(path)
    num_named = 0
    for place in range(len(data)):
        mask = 1 << place % 8
        changed = bytearray(data)
        changed[place] ^= mask
        path.write_bytes(changed)
        try:
            assert read_journal(path) == records, (place, mask)
        except UserError as error:
            num_named += str(error).startswith(f"{path} is damaged (line ")
    assert num_named > 0.95 * len(data)  # all but what a kill tore


@pytest.mark.parametrize("change", ["removed", "repeated", "moved"])
def test_no_line_can_be_removed_repeated_or_moved(tmp_path: Path, change: str) -> None:
    path = tmp_path / "journal.jsonl"
    lines = written(path)
    records = read_journal(path)
    for place in range(len(lines) - 1):
        left = lines.copy()
        if change == "repeated":
            left.insert(place, left[place])
        else:
            line = left.pop(place)
            if change == "moved":
                left.insert(place + 1, line)
        path.write_bytes(b"".join(left))
        if b"\x18" in lines[place] and change != "moved":
            assert read_journal(path) == records  # what a kill tore says nothing
            continue
        if b"\x18" in lines[place] + lines[place + 1]:
            continue
        with pytest.raises(UserError, match="is damaged"):
            read_journal(path)


def test_a_killed_attempt_that_lives_on_beside_a_new_one_spoils_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    old = Journal(path)
    old.step(1, {})
    new = Journal(path)
    old.step(2, {})
    new.step(2, {})
    old.step(3, {})
    new.step(3, {})
    assert [record.step for record in read_journal(path)] == [1, 2, 2, 3, 3]
    old.close()
    new.close()


def test_a_writer_may_sleep_through_any_number_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    sleeper = Journal(path)
    sleeper.step(1, {})
    other = Journal(path)
    for step in range(2, 5000):
        other.step(step, {})
    sleeper.step(5000, {})
    other.step(5001, {})
    assert [record.step for record in read_journal(path)] == list(range(1, 5002))
    sleeper.close()
    other.close()


def test_a_writer_ends_the_line_that_a_kill_of_another_tore(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.step(1, {})
    with path.open("ab") as file:
        file.write(b'{"kind":"step","time_s":17')
    journal.step(2, {})
    journal.close()
    assert [record.step for record in read_journal(path)] == [1, 2]


def test_a_journal_of_an_older_version_is_read_and_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    old = [json.dumps({"kind": "step", "time_s": 0.0, "step": step, "metrics": {}}) for step in (1, 2)]
    path.write_text(f"{old[0]}\n{old[1][:9]}\n{old[1]}\n")
    assert [record.step for record in read_journal(path)] == [1, 2]
    journal = Journal(path)
    journal.step(3, {})
    journal.close()
    assert [record.step for record in read_journal(path)] == [1, 2, 3]
    path.write_text(f"{path.read_text()}{old[0]}\n")
    with pytest.raises(UserError, match="line 5: it was changed"):
        read_journal(path)


class SmallDisk:
    """Gives what fits of a write, then the error, as a real one does."""

    def __init__(self, room_bytes: int) -> None:
        self.room_bytes = room_bytes
        self._write = os.write

    def write(self, descriptor: int, data: bytes) -> int:
        if self.room_bytes == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._write(descriptor, data[: self.room_bytes])
        self.room_bytes -= written
        return written


def test_on_a_full_disk_records_wait_in_order_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SmallDisk(room_bytes=60)
    journal = Journal(tmp_path / "journal.jsonl")
    monkeypatch.setattr(os, "write", disk.write)
    for step in range(1, 4):
        journal.step(step, {"loss": 1.0})
    assert read_journal(tmp_path / "journal.jsonl") == []
    disk.room_bytes = 10**6
    journal.step(4, {"loss": 1.0})
    assert [record.step for record in read_journal(tmp_path / "journal.jsonl")] == [1, 2, 3, 4]
    journal.close()


def test_sync_writes_what_waits_and_says_whether_all_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SmallDisk(room_bytes=60)
    journal = Journal(tmp_path / "journal.jsonl")
    assert journal.sync()
    monkeypatch.setattr(os, "write", disk.write)
    journal.step(1, {"loss": 1.0})
    assert not journal.sync()
    disk.room_bytes = 10**6
    assert journal.sync()
    assert [record.step for record in read_journal(tmp_path / "journal.jsonl")] == [1]
    journal.close()
