"""One file of a unit must not keep the others from being read."""

from pathlib import Path

import pytest

from data_prep.config import PrepConfig
from data_prep.corpus.text_store import read_columns
from data_prep.sources.plan import plan_units
from data_prep.steps import reading
from data_prep.steps.reading import read_unit_task
from data_prep.steps.reading_config import ReadingConfig
from data_prep.text.file import TextFile


def test_a_file_that_breaks_a_parser_is_a_row(
    config: PrepConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passing = reading.first_rejection

    def break_down(file: TextFile, *rest: object) -> object:
        if file.path.endswith("module3.py"):
            raise ArithmeticError("17 is\nnot prime enough")
        return passing(file, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(reading, "first_rejection", break_down)
    (unit,) = plan_units(config.source)
    read_unit_task(unit, ReadingConfig.of(config), None, "run", tmp_path / "part.arrow")
    rows = read_columns(tmp_path / "part.arrow").to_pylist()
    crashed = [row for row in rows if row["rule"] == "crash"]
    assert {row["path"] for row in crashed} == {"src/module3.py"}
    assert len(crashed) == 8
    assert crashed[0]["detail"].startswith("ArithmeticError: 17 is")
    assert len(rows) == 55
