import time
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.repository_order.order import dependencies_first

# Under a second of CPU time by itself; more on a busy machine, in a process with much else in memory. Anything
# quadratic would take minutes.
_SECONDS = 5


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    size = draw(st.integers(1, 9))
    nodes = st.integers(0, size - 1)
    return draw(st.lists(st.lists(nodes, max_size=4), min_size=size, max_size=size))


def reachable(needs: Sequence[Sequence[int]], start: int) -> set[int]:
    """Slow reference: every node on a path of one or more edges from `start`."""
    found: set[int] = set()
    waiting = list(needs[start])
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += needs[node]
    return found


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_needed_nodes_come_first_unless_there_is_a_cycle(needs: list[list[int]]) -> None:
    order = dependencies_first(needs)
    assert sorted(order) == list(range(len(needs)))
    place = {node: i for i, node in enumerate(order)}
    reach = [reachable(needs, node) for node in range(len(needs))]
    for node in range(len(needs)):
        for needed in reach[node]:
            if node not in reach[needed]:
                assert place[needed] < place[node]


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_nodes_of_a_cycle_are_consecutive(needs: list[list[int]]) -> None:
    order = dependencies_first(needs)
    reach = [reachable(needs, node) for node in range(len(needs))]
    for node in range(len(needs)):
        circle = {other for other in reach[node] if node in reach[other]} | {node}
        places = sorted(order.index(member) for member in circle)
        assert places == list(range(places[0], places[0] + len(circle)))


def test_nodes_without_needs_keep_their_order() -> None:
    assert dependencies_first([[] for _ in range(50)]) == list(range(50))


def test_a_needed_node_is_right_before_its_first_user() -> None:
    assert dependencies_first([[], [3], [], [], [3]]) == [0, 3, 1, 2, 4]


def test_a_cycle_starts_at_the_node_with_fewest_needs() -> None:
    # 0 needs 1 and 2; 1 needs 0 and 2; 2 needs 0 alone: 2 waits for the fewest, then 0 and 1 for one each.
    assert dependencies_first([[1, 2], [0, 2], [0]]) == [2, 0, 1]


def test_a_chain_of_a_hundred_thousand_nodes_takes_seconds_and_no_recursion() -> None:
    size = 100_000
    start_s = time.process_time()
    order = dependencies_first([[i + 1] if i + 1 < size else [] for i in range(size)])
    assert order == list(range(size - 1, -1, -1))
    assert time.process_time() - start_s < _SECONDS


def test_one_cycle_of_a_hundred_thousand_nodes_takes_seconds() -> None:
    size = 100_000
    start_s = time.process_time()
    order = dependencies_first([[(i + 1) % size, (i + 7) % size] for i in range(size)])
    assert sorted(order) == list(range(size))
    assert time.process_time() - start_s < _SECONDS
