"""With a GPU's settings DeepSpeed exchanges gradients while the backward pass goes on, where `module_engine` says so.

What is seen on a CPU is the order in which both are begun; there an exchange is not in the background.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.fork_server import start_ranks
from tests.distributed.overlap_main import NUM_LAYERS

CASES: list[dict[str, Any]] = [
    {"zero_stage": stage, "micro_batch_lanes": lanes, "precision": precision}
    for stage in (0, 1, 2, 3)
    for lanes in (4, 2)  # one micro-batch per worker, and two
    for precision in ("bf16", "fp32")
]


def orders_of(folder: Path, on_gpu: bool) -> list[list[list[str]]]:
    """Of each case and micro-batch of the first worker, layers and exchanges in the order of the backward pass."""
    folder.mkdir()
    settings = {"folder": str(folder), "cases": CASES, "on_gpu": on_gpu}
    for rank, process in enumerate(start_ranks("overlap_main", settings, 2, f"{folder}/{{}}.log")):
        assert process.wait(300) == 0, (folder / f"{rank}.log").read_text()[-3000:]
    orders: list[list[list[str]]] = json.loads((folder / "order.json").read_text())
    return orders


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> list[list[list[str]]]:
    return orders_of(tmp_path_factory.mktemp("order") / "gpu", on_gpu=True)


def overlaps(order: list[str]) -> bool:
    """Whether an exchange begins before each layer but the highest is done."""
    layers = [name for name in order if name != "exchange"]
    assert layers == [f"layer {number}" for number in reversed(range(NUM_LAYERS))]
    places = [order.index(layer) for layer in layers]
    gaps = zip(places, places[1:], strict=False)
    return all("exchange" in order[higher:lower] for higher, lower in gaps)


def test_buckets_are_exchanged_during_the_backward_pass(orders: list[list[list[str]]]) -> None:
    for case, micro_batches in zip(CASES, orders, strict=True):
        adds_up_in_float32 = case["precision"] == "bf16" and len(micro_batches) > 1
        expected = [False] * len(micro_batches)
        if case["zero_stage"] == 1 and not adds_up_in_float32:
            expected[-1] = True  # the sum of all micro-batches is exchanged
        elif case["zero_stage"] > 1:
            expected = [True] * len(micro_batches)
        assert [overlaps(order) for order in micro_batches] == expected, case


def test_what_is_not_exchanged_meanwhile_is_exchanged_after_the_last_micro_batch(
    orders: list[list[list[str]]],
) -> None:
    for case, micro_batches in zip(CASES, orders, strict=True):
        assert micro_batches[-1][-1] == "exchange", case
        for order in micro_batches[:-1]:
            assert ("exchange" in order) is (case["zero_stage"] > 1), case


def test_the_single_bucket_of_a_cpu_is_exchanged_after_the_backward_pass(tmp_path: Path) -> None:
    """So the order that is seen depends on the settings."""
    for micro_batches in orders_of(tmp_path / "cpu", on_gpu=False):
        assert not any(overlaps(order) for order in micro_batches)
