"""Components by rounds agree with one traversal of the graph."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.dedup import pairs
from data_prep.dedup.clusters import component_labels
from tests.unit.data_prep.dedup.serial_work import SerialWork

Edge = tuple[int, int]


def plain_labels(num_nodes: int, edges: list[Edge]) -> list[int]:
    neighbours: list[set[int]] = [set() for _ in range(num_nodes)]
    for left, right in edges:
        neighbours[left].add(right)
        neighbours[right].add(left)
    labels = [-1] * num_nodes
    for start in range(num_nodes):
        waiting = [start] if labels[start] < 0 else []
        while waiting:
            node = waiting.pop()
            if labels[node] < 0:
                labels[node] = start
                waiting.extend(neighbours[node])
    return labels


def labels_of(
    folder: Path, num_nodes: int, edges: list[Edge], num_files: int, edges_per_task: int
) -> list[int]:
    work = SerialWork(folder)
    files = []
    for number in range(num_files):
        ends = np.array(edges[number::num_files], np.int64).reshape(-1, 2)
        files.append(folder / f"edges-{number}.npy")
        pairs.write(files[-1], pairs.encode(ends[:, 0], ends[:, 1], num_nodes))
    return component_labels(files, num_nodes, "key", work, edges_per_task).tolist()


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[Edge]]:
    num_nodes = draw(st.integers(1, 40))
    node = st.integers(0, num_nodes - 1)
    return num_nodes, draw(st.lists(st.tuples(node, node), max_size=60))


@settings(max_examples=60, deadline=None)
@given(graphs(), st.sampled_from([1, 2, 7, 1000]), st.integers(1, 3))
def test_labels_are_the_smallest_nodes_of_the_components(
    tmp_path_factory: pytest.TempPathFactory,
    graph: tuple[int, list[Edge]],
    edges_per_task: int,
    num_files: int,
) -> None:
    num_nodes, edges = graph
    folder = tmp_path_factory.mktemp("graph")
    assert labels_of(folder, num_nodes, edges, num_files, edges_per_task) == plain_labels(num_nodes, edges)


@pytest.mark.parametrize("edges_per_task", [60, 400, 10_000])
@pytest.mark.parametrize("shape", ["path", "shuffled path", "star", "clique"])
def test_hard_shapes_converge(tmp_path: Path, shape: str, edges_per_task: int) -> None:
    num_nodes = 1000 if "path" in shape else 50
    order = np.arange(num_nodes)
    if shape == "shuffled path":
        order = np.random.default_rng(0).permutation(num_nodes)
    edges = {
        "star": [(0, node) for node in range(1, num_nodes)],
        "clique": [(a, b) for a in range(num_nodes) for b in range(a)],
    }.get(shape) or list(zip(order[:-1].tolist(), order[1:].tolist(), strict=True))
    assert labels_of(tmp_path, num_nodes, edges, 3, edges_per_task) == [0] * num_nodes
