"""A heartbeat shows until when a process lived; the start time of a process is precise."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster.heartbeat import Heartbeat, last_beat_s

BEATER = """
import sys, time
from pathlib import Path
from cluster.heartbeat import Heartbeat
with Heartbeat(Path(sys.argv[1])):
    print("beats", flush=True)
    time.sleep(60)
"""


def test_a_killed_process_leaves_its_last_beat(tmp_path: Path) -> None:
    path = tmp_path / "heartbeat"
    assert last_beat_s(path) is None
    process = subprocess.Popen([sys.executable, "-c", BEATER, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"beats\n"
    time.sleep(1.2)
    process.kill()
    process.wait()
    process.stdout.close()
    killed_s = time.time()
    beat_s = last_beat_s(path)
    assert beat_s is not None
    assert killed_s - 1.0 < beat_s < killed_s
    time.sleep(0.6)
    assert last_beat_s(path) == beat_s
    with Heartbeat(path) as heartbeat:
        assert heartbeat.previous_beat_s == beat_s
        assert last_beat_s(path) != beat_s


def test_the_last_beat_is_at_the_end_of_the_block(tmp_path: Path) -> None:
    before_s = time.time()
    with Heartbeat(tmp_path / "heartbeat"):
        pass
    beat_s = last_beat_s(tmp_path / "heartbeat")
    assert beat_s is not None
    assert before_s <= beat_s <= time.time()


def test_a_beat_that_cannot_be_written_is_skipped(tmp_path: Path) -> None:
    with Heartbeat(tmp_path / "missing" / "heartbeat") as heartbeat:
        assert heartbeat.previous_beat_s is None
    assert last_beat_s(tmp_path / "missing" / "heartbeat") is None


def test_the_start_time_of_a_process_is_constant() -> None:
    code = "import time; time.sleep(0.3); from cluster.heartbeat import process_started_s as s; print(s())"
    before_s = time.time()
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert float(printed) == pytest.approx(before_s, abs=0.1)
