"""How a run hears that it shall stop."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from cluster.reporter import Reporter
from pretrain.health.stop import STOP_NAME, StopRequest, stop_requests, until_done_or_stopped


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


def test_the_first_interrupt_asks_the_second_is_raised(tmp_path: Path) -> None:
    def fit() -> None:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)
        while not (tmp_path / STOP_NAME).exists():
            time.sleep(0.01)

    until_done_or_stopped(fit, tmp_path / STOP_NAME, Reporter())
    assert (tmp_path / STOP_NAME).exists()

    def fit_on() -> None:
        fit()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)

    with pytest.raises(KeyboardInterrupt):
        until_done_or_stopped(fit_on, tmp_path / STOP_NAME, Reporter())


def test_what_the_workers_raise_is_raised(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        until_done_or_stopped(lambda: 1 // 0, tmp_path / STOP_NAME, Reporter())
