"""How a run hears that it shall stop."""

import os
import signal
import threading
from pathlib import Path

from pretrain.health.stop import STOP_NAME, StopRequest, stop_requests


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
    (tmp_path / STOP_NAME).touch()
    assert looking.is_made()
    assert not other.is_made()


def test_outside_the_main_thread_the_file_still_counts(tmp_path: Path) -> None:
    heard: list[bool] = []

    def work() -> None:
        with stop_requests(tmp_path, looks_for_file=True) as request:
            (tmp_path / STOP_NAME).touch()
            heard.append(request.is_made())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert heard == [True]
