"""Of all that a journal says about a step, what counts, and from when on nothing can take it back."""

import random

from hypothesis import given
from hypothesis import strategies as st

from cluster.journal import JournalRecord
from pipeline.mlflow.journal_metrics import SettledPoints
from pretrain.journal.replay import counting_steps


def step(number: int, applied: bool = True, **metrics: float) -> JournalRecord:
    facts = {"applied": applied}
    return JournalRecord(kind="step", time_s=float(number), step=number, metrics=metrics, facts=facts)


def event(name: str, **facts: object) -> JournalRecord:
    return JournalRecord(kind="event", time_s=0.0, name=name, facts=facts)


def test_the_first_word_on_a_metric_of_a_step_counts() -> None:
    records = [
        step(1, loss=1.0),
        step(2, loss=2.0),
        event("start", step=0),
        step(1, loss=9.0),
        step(1, val=5.0),
        step(2, loss=9.0),
        step(3, loss=3.0),
    ]
    assert counting_steps(records) == {1: {"loss": 1.0, "val": 5.0}, 2: {"loss": 2.0}, 3: {"loss": 3.0}}


def test_a_rewind_makes_what_is_behind_its_target_void() -> None:
    records = [*(step(number, loss=float(number)) for number in range(1, 6)), event("rewind", to_step=2)]
    again = [step(3, loss=30.0), step(4, loss=40.0)]
    assert {number: one["loss"] for number, one in counting_steps([*records, *again]).items()} == {
        1: 1.0,
        2: 2.0,
        3: 30.0,
        4: 40.0,
    }


def test_points_are_held_back_until_no_rewind_can_reach_them() -> None:
    points = SettledPoints()
    points.take([event("start", step=0, rewind_patience_steps=2)])
    points.take([step(number, loss=1.0) for number in range(1, 5)])
    assert points.settled() == []
    points.take([event("checkpoint", step=4), step(5, loss=1.0)])
    assert points.settled() == []
    points.take([step(6, loss=1.0)])
    assert [point.step for point in points.settled()] == [1, 2, 3, 4]
    assert points.settled() == []
    points.take([event("end", step=6)])
    assert [point.step for point in points.settled()] == [5, 6]


def test_without_rewinds_points_are_settled_at_once() -> None:
    points = SettledPoints()
    points.take([step(1, loss=1.0)])
    assert [(point.name, point.value, point.time_s) for point in points.settled()] == [("loss", 1.0, 1.0)]


def test_a_finished_run_that_is_extended_settles_nothing_early() -> None:
    start = {"rewind_patience_steps": 2}
    points = SettledPoints()
    points.take([event("start", step=0, **start), step(1, loss=1.0), event("end", step=1)])
    assert [point.step for point in points.settled()] == [1]
    points.take([event("start", step=1, **start), step(2, loss=1.0)])
    assert points.settled() == []
    points.take([event("end", step=2)])
    assert [point.step for point in points.settled()] == [2]


def test_steps_that_a_rewind_may_void_count_as_far_as_the_records_go() -> None:
    records = [event("start", step=0, rewind_patience_steps=2), step(1, loss=1.0), step(2, loss=2.0)]
    assert counting_steps(records) == {1: {"loss": 1.0}, 2: {"loss": 2.0}}


def losses(records: list[JournalRecord]) -> dict[int, float]:
    return {number: one["loss"] for number, one in counting_steps(records).items()}


MADE = [step(number, loss=float(number)) for number in range(1, 6)]
CHANGED = [*MADE, event("attempt"), event("accepted", key="optimizer"), event("start", step=2)]


def test_under_accepted_changes_steps_are_other_ones() -> None:
    assert losses(CHANGED) == {1: 1.0, 2: 2.0}
    assert losses([*CHANGED, step(3, loss=30.0)]) == {1: 1.0, 2: 2.0, 3: 30.0}


def test_a_kill_under_accepted_changes_is_like_any_other() -> None:
    killed = [*CHANGED, step(3, loss=30.0), event("checkpoint", step=3), step(4, loss=40.0)]
    again = [event("attempt"), event("start", step=3), step(4, loss=99.0), step(5, loss=50.0)]
    assert losses([*killed, *again]) == {1: 1.0, 2: 2.0, 3: 30.0, 4: 40.0, 5: 50.0}


def test_changes_whose_attempt_died_before_it_started_change_nothing() -> None:
    died = [*MADE, event("attempt"), event("accepted", key="optimizer")]
    again = [event("attempt"), event("start", step=2), step(3, loss=99.0)]
    assert losses([*died, *again]) == {number: float(number) for number in range(1, 6)}


def test_changes_that_are_undone_before_a_checkpoint_make_their_steps_void() -> None:
    back = [step(3, loss=30.0), event("attempt"), event("start", step=2), step(3, loss=31.0)]
    assert losses([*CHANGED, *back]) == {1: 1.0, 2: 2.0, 3: 31.0}


@given(
    seed=st.integers(0, 10**6),
    patience_steps=st.integers(1, 4),
    commit_every=st.integers(1, 6),
    rewinds=st.booleans(),
)
def test_the_returned_points_are_those_that_count_in_the_end(
    seed: int, patience_steps: int, commit_every: int, rewinds: bool
) -> None:
    """Random kills, spikes and steps not applied: points returned early are exactly those of the whole journal, each
    once."""
    draw = random.Random(seed)
    starting = {"rewind_patience_steps": patience_steps if rewinds else None}
    records: list[JournalRecord] = [event("start", step=0, **starting)]
    handed_out = []
    points = SettledPoints()
    at, checkpoints, seen = 0, [0], 0
    high: list[int] = []
    while at < 25:
        at += 1
        applied = draw.random() < 0.7
        records.append(step(at, applied, loss=draw.random()))
        if applied:
            high = [*high, at] if rewinds and draw.random() < 0.5 else []
        if len(high) == patience_steps:
            # To the newest checkpoint before the spike, and not further.
            at = max(one for one in checkpoints if one < high[0])
            checkpoints, high = [one for one in checkpoints if one <= at], []
            records.append(event("rewind", to_step=at))
        elif at % commit_every == 0:
            checkpoints.append(at)
            records.append(event("checkpoint", step=at))
        if not rewinds and draw.random() < 0.1:
            at = checkpoints[-1]
            records.append(event("start", step=at, **starting))
        if draw.random() < 0.5:
            points.take(records[seen:])
            seen = len(records)
            handed_out += points.settled()
    records.append(event("end", step=at))
    points.take(records[seen:])
    handed_out += points.settled()
    assert [point.step for point in handed_out] == list(range(1, 26))
    assert {point.step: {"loss": point.value} for point in handed_out} == counting_steps(records)
