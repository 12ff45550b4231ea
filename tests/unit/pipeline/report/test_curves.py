"""Curves come out of a journal in order, each step once."""

from pathlib import Path

import pytest

from cluster.journal import JournalRecord, read_journal
from pipeline.report.curve_data import smooth, training_curves
from tests.unit.pipeline.example_run import write_pretrain_journal


def step(number: int, **metrics: float) -> JournalRecord:
    return JournalRecord(kind="step", time_s=0.0, step=number, metrics=metrics)


def test_the_first_record_of_a_step_holds() -> None:
    records = [step(1, loss=3.0, tokens=10), step(2, loss=2.0, tokens=20), step(2, loss=9.0, tokens=20)]
    curve = training_curves(records)["loss"]
    assert (curve.tokens, curve.values) == ([10, 20], [3.0, 2.0])


def test_a_validation_without_tokens_stands_at_its_steps_tokens() -> None:
    records = [step(1, loss=3.0, tokens=10), step(1, validation_bits_per_byte=2.0), step(2, tokens=20)]
    assert training_curves(records)["validation_bits_per_byte"].tokens == [10]


def test_a_long_curve_is_thinned_but_keeps_its_ends() -> None:
    curve = training_curves([step(number, loss=number, tokens=number) for number in range(1, 5000)])["loss"]
    assert len(curve.values) < 700
    assert (curve.values[0], curve.values[-1]) == (1, 4999)


def test_a_journal_with_a_resume_gives_rising_tokens(tmp_path: Path) -> None:
    write_pretrain_journal(tmp_path / "journal.jsonl")
    curve = training_curves(read_journal(tmp_path / "journal.jsonl"))["loss"]
    assert curve.tokens == sorted(set(curve.tokens))
    assert len(curve.tokens) == 500


def test_smoothing_keeps_a_constant_and_starts_at_the_first_value() -> None:
    assert smooth([2.0, 2.0, 2.0]) == pytest.approx([2.0, 2.0, 2.0])
    assert smooth([5.0, 1.0])[0] == pytest.approx(5.0)
    assert smooth([]) == []
