"""Clusters of near duplicates: connected components of a graph that is too large for one process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UserError
from cluster.file_tasks import FileTask
from cluster.storage import fingerprint
from data_prep.corpus.work import Work
from data_prep.dedup import pairs
from data_prep.dedup.candidates import find_candidates
from data_prep.dedup.catalogue import DedupPart, build_catalogue
from data_prep.dedup.config import NearDuplicatesConfig
from data_prep.dedup.similarity import verify_candidates

_EDGES_PER_TASK = 4_000_000
_EDGE_BYTES = 8
# Each turn at least halves a path, so even a graph of 2^32 nodes needs far fewer.
_MAX_TURNS = 100


@dataclass(frozen=True, slots=True)
class _Round:
    """The properties that all tasks of a round share."""

    name: str
    function: Callable[..., None]
    num_tasks: int
    num_nodes: int
    key: str


def component_labels(
    edge_files: Sequence[Path],
    num_nodes: int,
    key: str,
    work: Work,
    edges_per_task: int = _EDGES_PER_TASK,
) -> NDArray[np.int64]:
    """Return the smallest node of each node's component, shape [num_nodes].

    `edge_files` contain pairs in either order; `key` identifies their content.
    """
    labels = np.arange(num_nodes)
    files = list(edge_files)
    for turn in range(_MAX_TURNS):
        num_edges = sum(pairs.count(path) for path in files)
        if not num_edges:
            return labels
        num_tasks = -(-num_edges // edges_per_task)
        turn_key = f"{key}/{edges_per_task}/{turn}"
        contracted = _run(_Round("contract", contract, num_tasks, num_nodes, turn_key), files, work)
        if num_tasks == 1:
            # One task has seen all edges: its stars are the components.
            files = contracted
        else:
            files = _run(_Round("large-star", large_star, num_tasks, num_nodes, turn_key), contracted, work)
        if num_tasks == 1 or all(_is_star_file(path) for path in files):
            left, right = pairs.decode(pairs.read(files, 0, num_nodes, num_nodes), num_nodes)
            labels[np.maximum(left, right)] = np.minimum(left, right)
            return labels
    raise RuntimeError(f"components did not converge in {_MAX_TURNS} turns")


def contract(edge_files: Sequence[Path], first: int, last: int, num_nodes: int, output: Path) -> None:
    """Task: replace the edges that begin in [first, last) by stars, each edge written both ways."""
    left, right = pairs.decode(pairs.read(edge_files, first, last, num_nodes), num_nodes)
    nodes, places = np.unique(np.concatenate([left, right]), return_inverse=True)
    roots = nodes[smallest_reached(places[: len(left)], places[len(left) :], len(nodes))]
    outer = nodes != roots
    nodes, roots = nodes[outer], roots[outer]
    both_ways = np.concatenate([nodes, roots]), np.concatenate([roots, nodes])
    pairs.write(output, pairs.encode(*both_ways, num_nodes))


def large_star(edge_files: Sequence[Path], first: int, last: int, num_nodes: int, output: Path) -> None:
    """Task: for the nodes in [first, last), connect their larger neighbours to their smallest one.

    Edges are read both ways and written from the larger node. The file begins with the pair (0, 0), which is no
    edge, unless every node of the range is the centre of a star or connected to one centre only.
    """
    centres, neighbours = pairs.decode(pairs.read(edge_files, first, last, num_nodes), num_nodes)
    starts = np.flatnonzero(np.diff(centres, prepend=-1))
    sizes = np.diff(starts, append=len(centres))
    smallest = np.minimum(neighbours[starts], centres[starts])
    is_converged = not np.any((neighbours[starts] < centres[starts]) & (sizes > 1))
    is_larger = neighbours > centres
    codes = pairs.encode(neighbours[is_larger], np.repeat(smallest, sizes)[is_larger], num_nodes)
    pairs.write(output, codes if is_converged else np.concatenate([[np.uint64(0)], codes]))


def smallest_reached(left: NDArray[np.int64], right: NDArray[np.int64], num_nodes: int) -> NDArray[np.int64]:
    """Return for each node of a graph in memory the smallest node of its component."""
    roots = np.arange(num_nodes)
    while True:
        low, high = np.minimum(roots[left], roots[right]), np.maximum(roots[left], roots[right])
        if not np.any(low != high):
            return roots
        # Every root with a smaller neighbour gets such a parent, so each pass at least halves a component's roots.
        np.minimum.at(roots, high, low)
        while np.any(roots[roots] != roots):
            roots = roots[roots]


def _run(this: _Round, files: Sequence[Path], work: Work) -> list[Path]:
    bounds = [this.num_nodes * number // this.num_tasks for number in range(this.num_tasks + 1)]
    size_bytes = sum(pairs.count(path) for path in files) * _EDGE_BYTES // this.num_tasks
    tasks = [
        FileTask(
            f"near-{this.name} {this.key[-8:]} {number}",
            work.path(f"near-{this.name}", [this.key, number, this.num_tasks], "npy"),
            (tuple(files), bounds[number], bounds[number + 1], this.num_nodes),
        )
        for number in range(this.num_tasks)
    ]
    work.run("near duplicates: clusters", this.function, tasks, [size_bytes] * this.num_tasks)
    return [task.output for task in tasks]


def _is_star_file(path: Path) -> bool:
    codes = np.load(path, mmap_mode="r")
    return not len(codes) or codes[0] != 0


def near_duplicate_clusters(
    parts: Sequence[DedupPart], config: NearDuplicatesConfig, work: Work
) -> NDArray[np.int64]:
    """Return the label of each document, in the order of the parts' rows: the smallest document of its cluster.

    Documents are in one cluster if near duplicates connect them: pairs that share a band key and have a Jaccard
    similarity of at least `threshold`. Needs an open Ray session; files that a killed run left in the work folder are
    reused. The result depends on the parts, the rows and the config only. UserError beyond 2^32 documents.
    """
    documents = build_catalogue(parts, work)
    if documents.num_documents > pairs.MAX_DOCUMENTS:
        raise UserError(
            f"near duplicates: {documents.num_documents} documents are more than {pairs.MAX_DOCUMENTS}: "
            "prepare the corpus in several parts"
        )
    if documents.num_documents == 0:
        return np.empty(0, np.int64)
    candidates = find_candidates(documents, config, work)
    verified = verify_candidates(candidates, documents, config, work)
    key = fingerprint([documents.key, config.model_dump()])
    return component_labels(verified, documents.num_documents, key, work)
