"""Pretraining whose workers run out of memory goes on with smaller micro-batches, and so does the same command."""

from pathlib import Path
from typing import Any

import pytest

from cluster.journal import read_journal
from cluster.ray_session import RayConfig, ray_session
from cluster.storage import read_document
from pretrain import stage
from pretrain.stage import run_pretrain
from pretrain.worker import work
from tests.distributed.workers import small_config
from tests.unit.pipeline.recording_reporter import RecordingReporter

# Of what Ray uses.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_FITTING_LANES = 1


def work_in_little_memory(settings: dict[str, Any]) -> None:
    """In a worker: micro-batches of more than one lane do not fit."""
    if settings["run"].config.micro_batch_lanes > _FITTING_LANES:
        raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")
    work(settings)


@pytest.mark.slow
def test_micro_batches_become_smaller_and_stay_so(
    prep_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "work", work_in_little_memory)
    config = small_config(max_worker_restarts=1)
    reporter = RecordingReporter()
    with ray_session(RayConfig(num_cpus=2), tmp_path / "logs"):
        summary = run_pretrain(config, 0, prep_folder, tmp_path / "run", reporter)
        assert sum("micro-batches have 1 lanes instead of 2" in line for line in reporter.warnings) == 1
        longer = config.model_copy(update={"num_steps": 16})
        (tmp_path / "run/result.json").unlink()
        again = run_pretrain(
            longer, 0, prep_folder, tmp_path / "run", RecordingReporter(), frozenset({"num_steps"})
        )
    assert summary["validation"]
    assert again["resumed_from"] == [12]
    assert read_document(tmp_path / "run/micro_batch.json") == {"given": 2, "lanes": 1}
    records = read_journal(tmp_path / "run/journal.jsonl")
    assert {record.step for record in records if record.kind == "step"} >= set(range(1, 17))
