"""Rows as lines of JSON: whole, in order, whatever they hold."""

import json
from datetime import date
from pathlib import Path

import pytest

from finetune.experiment.files import first_rows, write_rows


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    rows = [{"b": "na\u00efve\n", "a": [1, None]}, {"text": "half \ud800 of a pair"}, {"c": 0.5}]
    write_rows(tmp_path / "rows.jsonl", rows)
    assert first_rows(tmp_path / "rows.jsonl", 2) == rows[:2]
    assert first_rows(tmp_path / "rows.jsonl", 9) == rows
    assert "na\u00efve" in (tmp_path / "rows.jsonl").read_text(encoding="utf-8")


def test_what_json_has_no_form_for_is_written_as_text(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [{"day": date(2026, 11, 21)}])
    assert json.loads((tmp_path / "rows.jsonl").read_text()) == {"day": "2026-11-21"}


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_rows(tmp_path / "rows.jsonl", [{"fine": 1}, {(1, 2): "no key"}])
    assert not list(tmp_path.iterdir())
