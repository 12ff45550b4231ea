"""How a run hears that it shall stop."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from pretrain.files import PretrainFiles
from pretrain.health.stop import StopRequest, stop_requests


def test_a_signal_is_heard_and_the_old_handler_comes_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_requests(tmp_path, looks_for_file=False) as request:
        assert not request.is_made()
        os.kill(os.getpid(), signal.SIGTERM)
        assert request.is_made()
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_file_is_seen_by_the_worker_that_looks(tmp_path: Path) -> None:
    looking, other = StopRequest(tmp_path, looks_for_file=True), StopRequest(tmp_path, looks_for_file=False)
    assert not looking.is_made()
    (tmp_path / PretrainFiles.STOP).touch()
    assert looking.is_made()
    assert not other.is_made()


def test_outside_the_main_thread_the_file_still_counts(tmp_path: Path) -> None:
    heard: list[bool] = []

    def work() -> None:
        with stop_requests(tmp_path, looks_for_file=True) as request:
            (tmp_path / PretrainFiles.STOP).touch()
            heard.append(request.is_made())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert heard == [True]


def test_the_first_interrupt_asks_the_second_is_raised(tmp_path: Path) -> None:
    """In a process of its own: a test's process may do other things with SIGINT."""
    script = """
import sys
from pathlib import Path
from cluster.reporter import Reporter
from pretrain.health.stop import request_stop, wait_or_stop

def has_ended():
    print("looks", flush=True)
    return False

wait_or_stop(has_ended, lambda: request_stop([Path(name) for name in sys.argv[1:]], Reporter()))
"""
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    command = [sys.executable, "-c", script, *map(str, folders)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "looks\n"
        process.send_signal(signal.SIGINT)
        deadline_s = time.monotonic() + 30
        while not all((folder / PretrainFiles.STOP).exists() for folder in folders):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        # How Python ends after a KeyboardInterrupt that nobody caught.
        assert process.wait(timeout=30) == -signal.SIGINT
