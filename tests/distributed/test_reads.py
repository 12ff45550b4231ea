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
ZERO_2 = "deepspeed/runtime/zero/stage_1_and_2.py"
WAITS_OF_ZERO_3 = {
    "deepspeed/runtime/zero/stage3.py:independent_gradient_partition_epilogue: wait for a stream": 2,
    "deepspeed/runtime/zero/partition_parameters.py:_allgather_params_coalesced: wait for the device": 1,
}
"""In a step of two micro-batches under ZeRO 3: they are left as they are, see `pretrain.engine.stream_waits`."""
CASES = [
    {"zero_stage": 0}, {"zero_stage": 1}, {"zero_stage": 2}, {"zero_stage": 3},
    {"zero_stage": 1, "micro_batch_lanes": 2}, {"zero_stage": 2, "micro_batch_lanes": 2},
    {"zero_stage": 0, "precision": "fp32"}, {"zero_stage": 2, "precision": "fp32"},
    {"zero_stage": 3, "precision": "fp32"}, {"zero_stage": 1, "num_workers": 1}, {"num_workers": 1},
]  # fmt: skip


def reads_of(
    folder: Path, prep_folder: Path, lag_steps: int, pretends_gpu: bool = True, **changes: Any
) -> list[dict[str, int]]:
    """Of each worker and step, from the launch to the figures that the host waits for next."""
    config = small_config(**{"micro_batch_lanes": 1, "num_steps": 6} | changes)
    settings = {
        "config": config.model_dump(mode="json"), "prep_folder": str(prep_folder), "folder": str(folder),
        "fault": None, "accepted": (), "lag_steps": lag_steps, "pretends_gpu": pretends_gpu,
    }  # fmt: skip
    processes = start_ranks("reads_main", settings, config.max_workers, f"{folder}/{{}}.log")
    for rank, process in enumerate(processes):
        assert process.wait(120) == 0, (folder / f"{rank}.log").read_text()[-3000:]
    steps: list[dict[str, int]] = []
    for rank in range(config.max_workers):
        steps += [relative(step) for step in json.loads((folder / f"reads-{rank}.json").read_text())]
    return steps


def relative(places: dict[str, int]) -> dict[str, int]:
    """Without the folder of the source tree, and without the checks of the first steps."""
    root = f"{Path(__file__).parents[2]}/"
    return without({place.removeprefix(root): count for place, count in places.items()}, CHECKS)


def without(places: dict[str, int], *parts: str) -> dict[str, int]:
    """Those whose name does not have all of these parts."""
    return {place: count for place, count in places.items() if not all(part in place for part in parts)}


@pytest.mark.parametrize("changes", CASES, ids=str)
def test_a_step_waits_for_the_figures_and_nothing_else(
    prep_folder: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    steps = reads_of(tmp_path, prep_folder, lag_steps=1, **changes)
    assert len(steps) >= 4 * changes.get("num_workers", 2)
    if changes.get("zero_stage") == 3:
        assert steps[1] == {FIGURES: 1, **WAITS_OF_ZERO_3}  # the launch of the third step alone
        steps = [without(step, "deepspeed/runtime/zero/", ": wait for ") for step in steps]
    assert steps == [{FIGURES: 1}] * len(steps)


def test_a_step_on_a_cpu_reads_its_figures_and_nothing_else(prep_folder: Path, tmp_path: Path) -> None:
    steps = reads_of(tmp_path, prep_folder, lag_steps=0, pretends_gpu=False)
    assert steps == [{FIGURES: 1}] * 12


def test_zero_3_compares_the_workers_in_the_first_steps_only(prep_folder: Path, tmp_path: Path) -> None:
    reads_of(tmp_path, prep_folder, lag_steps=0, zero_stage=3)
    steps = json.loads((tmp_path / "reads-0.json").read_text())
    assert len(steps) == 6
    checked = [any(CHECKS in place for place in places) for places in steps]
    assert checked[0]
    assert not any(checked[2:])


def test_an_update_in_cpu_memory_reads_the_gradient(prep_folder: Path, tmp_path: Path) -> None:
    """It must: the GPU's gradients have to have arrived. So this shows that reads and waits are found."""
    for places in reads_of(tmp_path, prep_folder, lag_steps=1, offload_optimizer=True):
        epilogue = f"{ZERO_2}:independent_gradient_partition_epilogue: wait for the device"
        assert places[epilogue] == 2  # micro-batches
        assert any(ZERO_2 in place and "aten::_local_scalar_dense" in place for place in places)


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
