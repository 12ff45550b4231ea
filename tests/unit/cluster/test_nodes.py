"""Nodes that are lost and come back, and nodes that cannot take part."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cluster import nodes
from cluster.errors import UserError
from cluster.nodes import NodeReport, NodeWatch, check_nodes, report_node, shared_marker
from tests.unit.pipeline.recording_reporter import RecordingReporter


class Port:
    """A raylet's port that can be closed and opened again."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.number = int(self.server.getsockname()[1])

    def close(self) -> None:
        self.server.close()

    def open(self) -> None:
        self.server = socket.create_server(("127.0.0.1", self.number))


def node(name: str, port: int, cpus: float = 1.0) -> dict[str, Any]:
    return {
        "NodeID": name,
        "Alive": True,
        "NodeManagerHostname": name,
        "NodeManagerAddress": "127.0.0.1",
        "NodeManagerPort": port,
        "Resources": {"CPU": cpus},
    }


def wait_for(reached: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@pytest.fixture
def ports() -> Iterator[tuple[Port, Port]]:
    both = Port(), Port()
    yield both
    for port in both:
        port.close()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The nodes that Ray lists; a test may change them."""
    listed: list[dict[str, Any]] = []
    monkeypatch.setattr("ray.nodes", lambda: list(listed))
    monkeypatch.setattr("ray._private.state.state.get_draining_nodes", lambda: {})
    monkeypatch.setattr(nodes, "_LOOK_S", 0.05)
    return listed


def test_a_node_without_power_is_lost_and_answers_again(
    cluster: list[dict[str, Any]], ports: tuple[Port, Port]
) -> None:
    port, steady = ports
    said = list[str]()
    cluster += [node("a", port.number), node("b", steady.number)]
    with NodeWatch(said.append) as watch:
        time.sleep(0.3)
        assert said == []
        port.close()
        wait_for(lambda: "a" in watch.lost_nodes())
        port.open()
        wait_for(lambda: not watch.lost_nodes())
    assert [line.partition(";")[0] for line in said] == [
        "node a (127.0.0.1) is lost",
        "node a (127.0.0.1) answers again",
    ]


def test_nodes_that_ray_drops_and_lists_are_named(
    cluster: list[dict[str, Any]], ports: tuple[Port, Port]
) -> None:
    port, said = ports[0], list[str]()
    cluster.append(node("a", port.number))
    with NodeWatch(said.append) as watch:
        time.sleep(0.3)
        cluster[:] = [node("c", port.number)]
        wait_for(lambda: len(said) == 2)
        assert set(watch.lost_nodes()) == {"a"}
    assert said[0].startswith("node a (127.0.0.1) is lost")
    assert said[1] == "node c (127.0.0.1) has joined"


def test_a_machine_is_lost_until_it_joins_again_under_whatever_id(
    cluster: list[dict[str, Any]], ports: tuple[Port, Port], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, steady = ports
    noted, shown = list[tuple[str, ...]](), list[float]()
    monkeypatch.setattr("cluster.run_state.change_nodes", lambda lost: noted.append(tuple(lost)))
    monkeypatch.setattr("cluster.metrics_export.show", lambda metric, value: shown.append(value))
    cluster += [node("a", port.number), node("b", steady.number)]
    with NodeWatch(lambda text: None):
        wait_for(lambda: noted == [()])
        del cluster[0]
        wait_for(lambda: noted[-1] == ("a (127.0.0.1)",))
        cluster.append({**node("a", port.number), "NodeID": "another id"})
        wait_for(lambda: noted[-1] == ())
    assert set(shown) == {0, 1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"versions": {"ray": "2.40.0"}}, "ray 2.40.0 instead of"),
        ({"sees_marker": False}, "mount the shared storage"),
        ({"missing_paths": ("/data/corpus",)}, "/data/corpus is missing there"),
    ],
)
def test_a_node_that_differs_is_named_with_the_reason(
    tmp_path: Path,
    cluster: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    words: str,
) -> None:
    cluster += [node("good", 1), node("bad", 1), node("head without work", 1, cpus=0)]
    with shared_marker(tmp_path) as marker:
        report = report_node(str(marker), ())
        changed = dict(change)
        if "versions" in changed:
            changed["versions"] = {**report.versions, **changed["versions"]}
        given: dict[str, tuple[NodeReport, float]] = {
            "good": (report, 0.0),
            "bad": (replace(report, **changed), 0.0),
        }
        asked: list[int] = []

        def ask(found: list[dict[str, Any]], *_: object) -> dict[str, tuple[NodeReport, float]]:
            asked.append(len(found))
            return given

        monkeypatch.setattr(nodes, "_ask", ask)
        reporter = RecordingReporter()
        with pytest.raises(UserError, match=r"^1 of 2 nodes cannot take part \(bad\)"):
            check_nodes(marker, [], reporter)
        assert asked == [2]
        assert len(reporter.warnings) == 1
        assert words in reporter.warnings[0]
        given["bad"] = report, 12.0
        check_nodes(marker, [], reporter)
        assert "clock differs by at least 12 s" in reporter.warnings[-1]
    assert not marker.exists()


def test_watching_ends_with_the_block(cluster: list[dict[str, Any]]) -> None:
    with NodeWatch(lambda text: None):
        assert any(thread.name == "nodes" for thread in threading.enumerate())
    wait_for(lambda: not any(thread.name == "nodes" for thread in threading.enumerate()))
