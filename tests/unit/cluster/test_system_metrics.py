"""A node's metrics are sampled into its own file, and their numbers continue after a restart."""

import time
from pathlib import Path

import pytest

from cluster.journal import read_journal
from cluster.system_metrics import SYSTEM_PATTERN, gpu_figures, sample_system


def take_samples(folder: Path, num_samples: int, node: str) -> list[int | None]:
    """Take that many new samples and return the numbers of all samples."""
    path = folder / f"system-{node}.jsonl"
    before = len(read_journal(path))
    deadline_s = time.monotonic() + 30
    with sample_system(folder, interval_s=0.01, node=node):
        while len(read_journal(path)) < before + num_samples and time.monotonic() < deadline_s:
            time.sleep(0.01)
    return [record.step for record in read_journal(path)]


def test_sample_numbers_continue_after_a_restart(tmp_path: Path) -> None:
    first = take_samples(tmp_path, 2, "node-1")
    again = take_samples(tmp_path, 2, "node-1")
    assert len(first) >= 2
    assert again == list(range(1, len(again) + 1))
    assert len(again) >= len(first) + 2
    take_samples(tmp_path, 1, "node-2")
    assert len(list(tmp_path.glob(SYSTEM_PATTERN))) == 2


def test_metrics_have_mlflows_names_and_units(tmp_path: Path) -> None:
    take_samples(tmp_path, 2, "a")
    figures = read_journal(tmp_path / "system-a.jsonl")[-1].metrics
    assert {name.rsplit("/", 1)[0] for name in figures} == {"system/a"}
    assert 0 <= figures["system/a/cpu_utilization_percentage"] <= 100
    assert 0 < figures["system/a/system_memory_usage_percentage"] <= 100
    assert figures["system/a/disk_available_megabytes"] > 0
    assert "system/a/network_receive_megabytes" in figures


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with sample_system(tmp_path / "file", interval_s=0.01, node="a"):
        time.sleep(0.05)
    assert (tmp_path / "file").read_text() == "in the way"


def test_gpus_are_read_from_the_drivers_lines() -> None:
    figures = gpu_figures("37, 1024, 4096, 300.50\n0, 0, 4096, [N/A]\n")
    assert figures == {
        "gpu_0_utilization_percentage": 37.0,
        "gpu_0_memory_usage_megabytes": pytest.approx(1073.741824),
        "gpu_0_memory_usage_percentage": 25.0,
        "gpu_0_power_usage_watts": 300.5,
        "gpu_1_utilization_percentage": 0.0,
        "gpu_1_memory_usage_megabytes": 0.0,
        "gpu_1_memory_usage_percentage": 0.0,
    }
    assert gpu_figures("") == {}
