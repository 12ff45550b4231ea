"""A training step reads what a GPU computes in one place: the figures of the step before."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.device_reads import DeviceReads
from tests.distributed.fork_server import start_ranks
from tests.distributed.workers import small_config

FIGURES = "pretrain/device_copies.py:read: tolist"
CHECKS = "deepspeed/runtime/zero/utils.py"
"""Where ZeRO 3 compares the order of the model's modules between workers, in the first steps only."""
CASES = [
    {"zero_stage": 0}, {"zero_stage": 1}, {"zero_stage": 2}, {"zero_stage": 3},
    {"zero_stage": 1, "micro_batch_lanes": 2}, {"zero_stage": 2, "micro_batch_lanes": 2},
    {"zero_stage": 0, "precision": "fp32"}, {"zero_stage": 2, "precision": "fp32"},
    {"zero_stage": 3, "precision": "fp32"}, {"zero_stage": 1, "num_workers": 1}, {"num_workers": 1},
]  # fmt: skip


def reads_of(folder: Path, prep_folder: Path, lag_steps: int, **changes: Any) -> list[dict[str, int]]:
    """Of each worker and step, from the launch to the figures that the host waits for next."""
    config = small_config(**{"micro_batch_lanes": 1, "num_steps": 6} | changes)
    settings = {
        "config": config.model_dump(mode="json"), "prep_folder": str(prep_folder), "folder": str(folder),
        "fault": None, "accepted": (), "lag_steps": lag_steps,
    }  # fmt: skip
    processes = start_ranks("reads_main", settings, config.max_workers, f"{folder}/{{}}.log")
    for rank, process in enumerate(processes):
        assert process.wait(120) == 0, (folder / f"{rank}.log").read_text()[-3000:]
    steps: list[dict[str, int]] = []
    for rank in range(config.max_workers):
        steps += [relative(step) for step in json.loads((folder / f"reads-{rank}.json").read_text())]
    return steps


def relative(places: dict[str, int]) -> dict[str, int]:
    """Without the folder of the source tree, and those of its checks that occur in the first steps only."""
    root = f"{Path(__file__).parents[2]}/"
    return {place.removeprefix(root): count for place, count in places.items() if CHECKS not in place}


@pytest.mark.parametrize("changes", CASES, ids=str)
def test_a_step_reads_its_figures_and_nothing_else(
    prep_folder: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    steps = reads_of(tmp_path, prep_folder, lag_steps=1, **changes)
    assert steps == [{FIGURES: 1}] * len(steps)
    assert len(steps) >= 4 * changes.get("num_workers", 2)


def test_zero_3_compares_the_workers_in_the_first_steps_only(prep_folder: Path, tmp_path: Path) -> None:
    reads_of(tmp_path, prep_folder, lag_steps=0, zero_stage=3)
    steps = json.loads((tmp_path / "reads-0.json").read_text())
    assert len(steps) == 6
    checked = [any(CHECKS in place for place in places) for places in steps]
    assert checked[0]
    assert not any(checked[2:])


def test_an_update_in_cpu_memory_reads_the_gradient(prep_folder: Path, tmp_path: Path) -> None:
    """It must: the GPU's gradients have to have arrived. So this shows that reads are found."""
    steps = reads_of(tmp_path, prep_folder, lag_steps=1, offload_optimizer=True)
    assert all(any("zero/stage_1_and_2.py" in place for place in places) for places in steps)


READS: dict[str, Any] = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x.sum()),
    "truth": lambda x: bool((x > 0).any()),
    "list": lambda x: x.tolist(),
    "array": lambda x: x.numpy(),
    "where": lambda x: torch.nonzero(x),
    "mask": lambda x: x[x > 0],
    "equal": lambda x: torch.equal(x, x + 1),
    "number": lambda x: torch.tensor(1.0, device=x.device),
    "mixed": lambda x: float(torch.tensor(2.0) * x.sum()),
}


@pytest.mark.parametrize("kind", READS)
def test_every_kind_of_read_is_found_where_it_is(kind: str) -> None:
    x = torch.arange(4.0)
    with DeviceReads() as reads:
        READS[kind](x)
    assert reads.places
    assert all("tests/distributed/test_reads.py" in place for place in reads.places)


def test_what_the_host_made_itself_is_no_read() -> None:
    x = torch.arange(4.0)
    with DeviceReads() as reads:
        norm = torch.stack([torch.tensor(1.0), torch.tensor(2.0)]).norm()
        assert not bool(torch.isfinite(norm) & (norm < 0))
        _ = x * 2 + x.sum()
    assert reads.places == Counter()
