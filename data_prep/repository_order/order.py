"""Order of a repository's files in which imported files come before the files that import them."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from data_prep.repository_order.dependencies import needs_of_files


def dependencies_first(needs: Sequence[Sequence[int]]) -> list[int]:
    """Return all nodes, each after the nodes `needs[node]` unless a cycle forbids that.

    The nodes are visited by number, and a node's needs, also by number, right before the node. Nodes that need each
    other in cycles (a strongly connected component) are consecutive; of them the one that still needs the fewest of the
    others is next, the lowest number of several. The time is linear but for a logarithm within components.
    """
    order: list[int] = []
    for component in _components(needs):
        order += component if len(component) == 1 else _order_component(component, needs)
    return order


def _components(needs: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return strongly connected components, needed ones first: Tarjan's algorithm with an explicit stack."""
    unseen = -1
    seen_at = [unseen] * len(needs)
    lowest = [0] * len(needs)
    is_open = [False] * len(needs)
    open_nodes: list[int] = []
    components: list[list[int]] = []
    num_seen = 0
    for root in range(len(needs)):
        if seen_at[root] != unseen:
            continue
        path = [(root, iter(needs[root]))]
        seen_at[root] = lowest[root] = num_seen
        num_seen += 1
        open_nodes.append(root)
        is_open[root] = True
        while path:
            node, rest = path[-1]
            for needed in rest:
                if seen_at[needed] == unseen:
                    path.append((needed, iter(needs[needed])))
                    seen_at[needed] = lowest[needed] = num_seen
                    num_seen += 1
                    open_nodes.append(needed)
                    is_open[needed] = True
                    break
                if is_open[needed]:
                    lowest[node] = min(lowest[node], seen_at[needed])
            else:
                path.pop()
                if path:
                    parent = path[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[node])
                if lowest[node] == seen_at[node]:
                    component = _pop_component(node, open_nodes, is_open)
                    components.append(component)
    return components


def _pop_component(node: int, open_nodes: list[int], is_open: list[bool]) -> list[int]:
    """Remove the component whose first node is `node` from the open nodes and return it."""
    component = []
    while True:
        member = open_nodes.pop()
        is_open[member] = False
        component.append(member)
        if member == node:
            return component


def _order_component(component: list[int], needs: Sequence[Sequence[int]]) -> list[int]:
    members = set(component)
    users: dict[int, list[int]] = {node: [] for node in component}
    num_waiting: dict[int, int] = {}
    for node in component:
        inside = {needed for needed in needs[node] if needed in members and needed != node}
        num_waiting[node] = len(inside)
        for needed in inside:
            users[needed].append(node)
    queue = [(count, node) for node, count in num_waiting.items()]
    heapq.heapify(queue)
    order: list[int] = []
    while queue:
        count, node = heapq.heappop(queue)
        if num_waiting.get(node) != count:  # an outdated entry
            continue
        del num_waiting[node]
        order.append(node)
        for user in users[node]:
            if user in num_waiting:
                num_waiting[user] -= 1
                heapq.heappush(queue, (num_waiting[user], user))
    return order


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """The properties of a file that decide its place; `imports` are those of `imports_of`."""

    path: str
    language: str
    imports: tuple[str, ...] = ()


def dependency_order(files: Sequence[RepositoryFile]) -> list[int]:
    """Return a permutation of `files`: imported files before those that import them, path order otherwise.

    Files are taken in path order, each right after those of its imports that are not placed yet. Files that import
    each other in cycles are consecutive; of them the one that still needs the fewest of the others is next
    (DeepSeek-Coder's rule), the first by path of several. The order depends on the set of files only, not on their
    order in `files`, and takes time almost linear in files and imports.
    """
    by_path = sorted(range(len(files)), key=lambda i: (files[i].path, files[i].language, files[i].imports, i))
    ordered = [files[i] for i in by_path]
    needs = needs_of_files(
        [file.path for file in ordered],
        [file.language for file in ordered],
        [file.imports for file in ordered],
    )
    return [by_path[node] for node in dependencies_first(needs) if node < len(files)]
