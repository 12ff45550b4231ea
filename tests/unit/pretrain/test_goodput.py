"""The goodput ledger against a count of single seconds, over random histories of kills, stops and rewinds."""

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.heartbeat import STALE_S
from cluster.journal import JournalRecord
from pretrain import goodput as goodput_module
from pretrain.goodput import LABELS, Goodput, LiveGoodput, Parts, goodput
from tests.unit.pretrain.simulated_run import NUM_STEPS, SimulatedRun

AttemptEnd = tuple[int | None, int | None, int]
"""Of an attempt: seconds until it is killed, the step after which it is stopped, seconds until the next."""
ATTEMPT_ENDS = st.lists(
    st.tuples(st.none() | st.integers(0, 40), st.none() | st.integers(1, NUM_STEPS - 1), st.integers(0, 9)),
    min_size=1,
    max_size=6,
)


def simulated(seed: int, attempt_ends: list[AttemptEnd]) -> SimulatedRun:
    """A run whose attempts end like this, long dead unless it finished."""
    run = SimulatedRun(random.Random(seed))
    for kill_after_s, stop_after, wait_s in attempt_ends:
        # A first attempt that died before it could say so is not known to have been.
        run.attempt(kill_after_s if run.records else kill_after_s or 1, stop_after)
        if run.is_finished:
            return run
        run.wait(wait_s)
    run.wait(int(STALE_S))
    return run


def account(run: SimulatedRun) -> Goodput:
    return goodput(run.records, run.beat_s, run.now_s)


def nonzero(parts: Parts) -> dict[str, float]:
    return {name: seconds for name, seconds in parts.by_name().items() if seconds}


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 10**6), attempt_ends=ATTEMPT_ENDS)
def test_every_second_is_counted_once_and_where_it_belongs(seed: int, attempt_ends: list[AttemptEnd]) -> None:
    run = simulated(seed, attempt_ends)
    found = account(run)
    assert nonzero(found.parts) == run.reference()
    assert found.wall_s == len(run.seconds)
    assert found.num_attempts == run.num_attempts
    assert found.unexplained_s == 0


class FakeTime:
    """Both clocks of the module `time`."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def time(self) -> float:
        return self.now_s

    def monotonic(self) -> float:
        return self.now_s - 1000


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10**6), attempt_ends=ATTEMPT_ENDS, piece=st.integers(1, 5))
def test_the_live_goodput_is_that_of_all_records_whenever_they_are_read(
    seed: int, attempt_ends: list[AttemptEnd], piece: int
) -> None:
    run = simulated(seed, attempt_ends)
    clock, read = FakeTime(), list[JournalRecord]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(goodput_module, "time", clock)
        live = LiveGoodput(lambda: read)
        assert live.share() is None
        for first in range(0, len(run.records), piece):
            new = run.records[first : first + piece]
            read += new
            clock.now_s = new[-1].time_s + 0.25
            live.take(new)
            whole = goodput(read, None, clock.now_s)
            assert live.share() == pytest.approx(whole.share)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), attempt_ends=ATTEMPT_ENDS, data=st.data())
def test_clocks_that_are_set_back_make_no_second_negative_and_lose_none_that_was_measured(
    seed: int, attempt_ends: list[AttemptEnd], data: st.DataObject
) -> None:
    run = simulated(seed, attempt_ends)
    steps = [index for index, record in enumerate(run.records) if record.kind == "step"]
    if not steps:
        return
    first, lag_s = data.draw(st.sampled_from(steps)), data.draw(st.integers(100, 10_000))
    straight = account(run)
    run.records[first:] = [set_back(record, lag_s) for record in run.records[first:]]
    beat_s = None if run.beat_s is None else run.beat_s - lag_s
    found = goodput(run.records, beat_s, run.now_s - lag_s)
    assert min(found.parts.by_name().values()) >= 0
    assert found.parts.total_s == found.wall_s
    # Only the few seconds between records that nobody measured may be counted otherwise.
    assert found.wall_s == pytest.approx(straight.wall_s, abs=2)
    assert found.parts.compute_s == pytest.approx(straight.parts.compute_s, abs=2)


def set_back(record: JournalRecord, lag_s: int) -> JournalRecord:
    times = ("began_s", "process_started_s", "previous_beat_s")
    facts = {name: value - lag_s if name in times else value for name, value in record.facts.items()}
    return dataclasses.replace(record, time_s=record.time_s - lag_s, facts=facts)


def event(name: str, time_s: float, **facts: object) -> JournalRecord:
    return JournalRecord(kind="event", time_s=time_s, name=name, facts=facts)


def step(number: int, time_s: float, **facts: float) -> JournalRecord:
    return JournalRecord(kind="step", time_s=time_s, step=number, metrics={"loss": 1.0}, facts=facts)


BEGINNING = [
    event("attempt", 3.0, process_started_s=0.0, previous_beat_s=None),
    event("start", 10.0, process_started_s=0.0, step=0),
    step(1, 20.0, began_s=10.0, data_s=1.0, compute_s=8.5, save_s=0.0, evaluation_s=0.0),
]


def test_a_live_run_is_at_work_until_now() -> None:
    found = goodput(BEGINNING, 24.0, 25.0)
    assert nonzero(found.parts) == {"startup_s": 10.0, "data_s": 1.0, "compute_s": 14.0}
    assert found.share == pytest.approx(14 / 25)


def test_a_live_run_that_makes_a_step_again_is_at_lost_work() -> None:
    again = [
        event("attempt", 31.0, process_started_s=30.0, previous_beat_s=26.0),
        event("start", 33.0, step=0),
    ]
    found = goodput([*BEGINNING, *again], 39.0, 40.0)
    assert nonzero(found.parts) == {
        "startup_s": 13.0,
        "data_s": 1.0,
        "compute_s": 9.0,
        "lost_s": 6.0 + 7.0,
        "down_s": 4.0,
    }


def test_what_the_measurements_leave_out_is_reported() -> None:
    assert goodput(BEGINNING, 20.0, 20.0).unexplained_s == pytest.approx(0.5)
    overlong = step(2, 22.0, began_s=20.0, data_s=1.0, compute_s=3.0)
    found = goodput([*BEGINNING, overlong], 22.0, 22.0)
    assert found.unexplained_s == pytest.approx(0.5 + 2.0)
    assert found.parts.total_s == found.wall_s == 22.0


def test_a_process_that_waited_for_its_task_began_when_the_one_before_had_died() -> None:
    # Ray starts workers before they are given anything to do.
    waited = [
        event("attempt", 31.0, process_started_s=1.0, previous_beat_s=26.0),
        event("start", 33.0, step=1),
    ]
    found = goodput([*BEGINNING, *waited], 33.0, 33.0)
    assert nonzero(found.parts) == {"startup_s": 17.0, "data_s": 1.0, "compute_s": 9.0, "lost_s": 6.0}


def test_a_rewind_that_the_next_start_tells_again_belongs_to_its_start_up() -> None:
    reported_again = [
        step(2, 30.0, began_s=20.0, compute_s=10.0),
        event("attempt", 41.0, process_started_s=40.0, previous_beat_s=32.0),
        event("rewind", 43.0, to_step=1),
        event("start", 45.0, step=1),
        step(2, 50.0, began_s=46.0, compute_s=4.0),
    ]
    found = goodput([*BEGINNING, *reported_again], 50.0, 50.0)
    assert found.num_attempts == 2
    assert nonzero(found.parts) == {
        "startup_s": 10.0 + 6.0,
        "data_s": 1.0,
        "compute_s": 9.0 + 4.0,
        "lost_s": 10.0 + 2.0,
        "down_s": 8.0,
    }


def test_an_evaluation_in_a_record_of_its_own_belongs_to_its_step() -> None:
    evaluation = step(1, 24.0, evaluation_s=4.0)
    found = goodput([*BEGINNING, evaluation], 24.0, 24.0)
    assert (found.parts.evaluation_s, found.parts.lost_s) == (4.0, 0.0)


def test_a_run_that_has_ended_takes_no_more_time() -> None:
    ended = event("end", 25.0, step=1, save_s=0.5, evaluation_s=4.0)
    found = goodput([*BEGINNING, ended], 25.4, 1e9)
    assert found.wall_s == 25.0
    assert (found.parts.save_s, found.parts.evaluation_s, found.parts.compute_s) == (0.5, 4.0, 9.5)


def test_without_records_there_is_no_time() -> None:
    found = goodput([], None, 5.0)
    assert (found.wall_s, found.share, found.num_attempts) == (0.0, 0.0, 0)


def test_a_journal_of_an_older_version_is_compute_that_nothing_explains() -> None:
    found = goodput([step(1, 5.0), step(2, 7.0)], None, 7.0)
    assert nonzero(found.parts) == {"compute_s": 2.0}
    assert found.unexplained_s == 2.0


def test_every_part_has_a_name_for_readers() -> None:
    assert list(LABELS) == list(Parts().by_name())
