"""What several test files of the pipeline share."""

from pathlib import Path

import pytest

from tests.unit.pipeline.recording_reporter import RecordingReporter


@pytest.fixture
def reporter() -> RecordingReporter:
    return RecordingReporter()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder that a directory source accepts: three packages of a few lines."""
    folder = tmp_path / "corpus"
    for package in ("one", "two", "three"):
        (folder / package).mkdir(parents=True)
        (folder / package / "code.py").write_text(f"def {package}(value):\n    return value + 1\n" * 10)
    return folder
