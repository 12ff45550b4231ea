"""The figures of a pretraining that was killed and went on: each step counts once, all time counts."""

from pathlib import Path

import pytest

from cluster.journal import read_journal
from pretrain.figures import figures_of
from tests.unit.pipeline.status_runs import RunOnDisk


def test_figures_count_each_step_once_and_all_the_time(tmp_path: Path) -> None:
    run = RunOnDisk(tmp_path / "out")
    began_s = run.clock_s
    run.attempt(12)
    killed_s = run.clock_s
    run.killed(back_to=10)
    run.clock_s += 30
    run.attempt(0, previous_beat_s=killed_s)
    for _ in range(5):
        run.one_step(tokens_per_s=64.0, validation_bits_per_byte=9.0)
    run.event("end", step=15)
    records = read_journal(run.folder / "journal.jsonl")
    figures = figures_of(records, None, records[-1].time_s)
    assert figures.num_steps == 15
    assert figures.step_tokens_per_s == 256.0
    assert figures.tokens == 15 * 256
    assert figures.overall_tokens_per_s == pytest.approx(15 * 256 / (records[-1].time_s - began_s))
    assert figures.validation is not None
    assert figures.best_validation is not None
    assert (figures.validation.step, figures.best_validation.step) == (15, 10)
    # A validation of step 11 and 12 came only when they were made again.
    assert figures.steps[12]["validation_bits_per_byte"] == 9.0
    assert figures.summary()["final_loss"] == figures.steps[15]["loss"]


def test_a_journal_without_a_step_has_no_figures(tmp_path: Path) -> None:
    run = RunOnDisk(tmp_path / "out")
    run.attempt(0)
    figures = figures_of(read_journal(run.folder / "journal.jsonl"), None, run.clock_s)
    assert (figures.num_steps, figures.step_tokens_per_s, figures.overall_tokens_per_s) == (0, None, None)
    assert figures.validation is None
    assert figures.summary()["final_loss"] is None
    assert figures_of([], None, 0.0).summary()["tokens_per_s_overall"] is None


def test_a_journal_that_was_moved_away_on_the_way_counts_the_steps_it_has(tmp_path: Path) -> None:
    run = RunOnDisk(tmp_path / "out")
    run.attempt(12)
    records = read_journal(run.folder / "journal.jsonl")
    later = [record for record in records if record.step is None or record.step > 10]
    whole, rest = (figures_of(some, None, records[-1].time_s) for some in (records, later))
    assert rest.num_steps == 12
    assert whole.overall_tokens_per_s is not None
    assert rest.overall_tokens_per_s == pytest.approx(whole.overall_tokens_per_s * 2 / 12)
