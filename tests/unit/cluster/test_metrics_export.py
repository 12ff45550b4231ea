"""Exported metrics: nothing without Ray, and never an error for the training."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster import metrics_export
from cluster.metrics_export import DATA_WAIT_S, LOSS, METRICS, add, show
from cluster.structured_log import Place, at, logged_to


class Recorded:
    """Stands where Ray's metric object would, of which only the calls matter here; the real one is in
    tests/integration/test_seen.py.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, float, dict[str, str]]] = []

    def set(self, value: float, tags: dict[str, str]) -> None:
        self.calls.append(("set", value, tags))

    def inc(self, value: float, tags: dict[str, str]) -> None:
        self.calls.append(("inc", value, tags))


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    found = Recorded()
    monkeypatch.setattr(metrics_export, "is_collected", lambda: True)
    monkeypatch.setattr(metrics_export, "_make", lambda metric: found)
    monkeypatch.setattr(metrics_export, "_exporter", metrics_export._Exporter())
    return found


def test_without_ray_nothing_happens_and_ray_is_not_imported() -> None:
    program = (
        "import sys; from cluster.metrics_export import *; from cluster import metrics_export as m\n"
        "m.show(m.LOSS, 1.0); m.add(m.DATA_WAIT_S, 1.0)\n"
        "assert not m.is_collected() and m._exporter._made == {}\n"
        "sys.exit('ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_a_ray_that_collects_no_metrics_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_enable_metrics_collection", "0")
    assert not metrics_export.is_collected()


def test_values_carry_the_place_and_those_that_are_no_numbers_are_left_out(
    recorded: Recorded, tmp_path: Path
) -> None:
    with logged_to(tmp_path / "log", Place(run="/runs/a", job="7", stage="pretrain", rank=1)):
        show(LOSS, 2.5)
        show(LOSS, math.nan)
        add(DATA_WAIT_S, 0.25)
        add(DATA_WAIT_S, 0.0)  # which Ray's counters refuse
    tags = {"run": "/runs/a", "job": "7", "stage": "pretrain", "system": ""}
    assert recorded.calls == [("set", 2.5, tags), ("inc", 0.25, tags)]


def test_gauges_are_set_again_while_the_process_is_at_the_same_place(
    recorded: Recorded, tmp_path: Path
) -> None:
    with logged_to(tmp_path / "log", Place(stage="pretrain")):
        show(LOSS, 2.5)
        add(DATA_WAIT_S, 0.25)
        recorded.calls.clear()
        metrics_export._exporter.refresh()
        with at(stage="completion"):
            metrics_export._exporter.refresh()
    assert [(call, value) for call, value, _ in recorded.calls] == [("set", 2.5)]


def test_an_error_of_ray_s_metrics_is_said_once_and_ends_nothing(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(metric: Any) -> None:
        raise RuntimeError("no agent")

    monkeypatch.setattr(metrics_export, "_make", fail)
    with logged_to(tmp_path / "log", Place()):
        show(LOSS, 1.0)
        show(LOSS, 2.0)
    (line,) = (json.loads(line) for line in (tmp_path / "log").read_text().splitlines())
    assert (line["message"], line["level"]) == ("metrics are no longer exported: no agent", "warning")


def test_names_and_descriptions_are_those_of_prometheus() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert all(name.startswith("permcode_") and not name.endswith("_total") for name in names)
    assert all(metric.description.endswith(".") for metric in METRICS)
