"""A function in a thread, and the one that waits for it."""

import threading

import pytest

from cluster.background import Background


def test_what_it_raises_is_raised_at_the_end() -> None:
    work = Background(lambda: 1 // 0, "test")
    work.start()
    while not work.has_ended():
        pass
    with pytest.raises(ZeroDivisionError):
        work.end()


def test_it_runs_once_however_often_it_is_started() -> None:
    may_end, runs = threading.Event(), []

    def work() -> None:
        runs.append(1)
        may_end.wait()

    background = Background(work, "test")
    background.start()
    background.start()
    assert not background.has_ended()
    may_end.set()
    while not background.has_ended():
        pass
    background.start()
    background.end()
    assert runs == [1]
