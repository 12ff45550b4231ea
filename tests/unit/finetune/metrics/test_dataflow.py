"""Data flow and subtree shapes of small programs, worked out by hand."""

from collections import Counter

import pytest
from tree_sitter import Node

from finetune.metrics.dataflow import _Flow, flow_items
from finetune.metrics.dataflow_grammars import GRAMMARS
from finetune.metrics.syntax import parse, subtree_shapes

FROM, COMPUTED = "comesFrom", "computedFrom"


def _items(code: str, language: str) -> Counter[tuple[int, str, tuple[int, ...]]]:
    return flow_items(parse(code, language), language)


def test_a_use_comes_from_the_last_setting() -> None:
    # 1 -> x; x -> x; 2 -> x; x (from the second) -> y. Numbers: 1 is 0, x 1, z 2, 2 is 3, y 4.
    assert _items("x = 1\nz = x\nx = 2\ny = x", "python") == Counter(
        {
            (1, COMPUTED, (0,)): 1,
            (0, FROM, ()): 1,
            (2, COMPUTED, (1,)): 1,
            (1, FROM, (1,)): 2,
            (1, COMPUTED, (3,)): 1,
            (3, FROM, ()): 1,
            (4, COMPUTED, (1,)): 1,
        }
    )


def test_tuples_are_set_one_by_one() -> None:
    # a (0) -> x (1), b (2) -> y (3).
    assert _items("x, y = a, b", "python") == Counter(
        {(1, COMPUTED, (0,)): 1, (3, COMPUTED, (2,)): 1, (0, FROM, ()): 1, (2, FROM, ()): 1}
    )
    assert (1, COMPUTED, (0,)) in _items("x, y = f", "python")


def _sources_of_last(code: str, language: str) -> int:
    """How many places the value of the last name in the code may come from."""
    flow = _Flow(GRAMMARS[language])
    flow.follow(parse(code, language), {}, depth=0)
    return len(flow.occurrences[max(flow.occurrences)].source_of)


@pytest.mark.parametrize(
    ("code", "language", "places"),
    [
        ("if c:\n    x = 1\nelse:\n    x = 2\nx", "python", 2),
        ("x = 0\nif c:\n    x = 1\nx", "python", 2),
        ("x = 0\nif c:\n    x = 1\nelif d:\n    x = 2\nelse:\n    x = 3\nx", "python", 3),
        ("x = 0\nif c:\n    y = 1\nx", "python", 1),
        ("void f() { int x; if (c) { x = 1; } else if (d) { x = 2; } else { x = 3; } g(x); }", "java", 3),
        ("void f() { int x = 0; if (c) x = 1; g(x); }", "java", 2),
        ("void F() { int x = 0; if (c) { x = 1; } G(x); }", "csharp", 2),
        ("function f() { let x = 0; if (c) { x = 1; } g(x); }", "javascript", 2),
        ("func f() { x := 0; if c { x = 1 }; g(x) }", "go", 2),
        ("function f() { $x = 0; if ($c) { $x = 1; } g($x); }", "php", 2),
        ("x = 0\nif c\n  x = 1\nend\ng(x)", "ruby", 2),
    ],
)
def test_after_a_branch_a_name_may_come_from_each(code: str, language: str, places: int) -> None:
    assert _sources_of_last(code, language) == places


@pytest.mark.parametrize(
    ("code", "language"),
    [
        ("x = 0\nwhile c:\n    y = x\n    x = 1", "python"),
        ("for i in l:\n    y = x\n    x = 1", "python"),
        ("void f() { for (int i = 0; i < n; i++) { y = x; x = 1; } }", "java"),
        ("void f() { for (String s : l) { y = x; x = 1; } }", "java"),
        ("void F() { foreach (var s in l) { y = x; x = 1; } }", "csharp"),
        ("function f() { for (const s of l) { y = x; x = 1; } }", "javascript"),
        ("func f() { for i := 0; i < n; i++ { y = x; x = 1 } }", "go"),
        ("function f() { while ($c) { $y = $x; $x = 1; } }", "php"),
        ("while c\n  y = x\n  x = 1\nend", "ruby"),
    ],
)
def test_a_loops_end_reaches_its_start(code: str, language: str) -> None:
    flow = _Flow(GRAMMARS[language])
    flow.follow(parse(code, language), {}, depth=0)
    mark = 1 if language == "php" else 0
    text = f"<?php {code}" if language == "php" else code
    used_at, set_at = text.index("= x" if not mark else "= $x") + 2, text.index("x = 1") - mark
    assert set_at in flow.occurrences[used_at].source_of


def test_updates_come_from_themselves() -> None:
    assert (0, COMPUTED, (0,)) in _items("void f() { x++; }", "java")
    assert (0, COMPUTED, (0,)) in _items("void F() { x++; }", "csharp")


def _slow_shapes(root: Node) -> list[str]:
    """S-expressions of all nodes with children, and of the root, as tree-sitter prints them."""
    found, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        if node.child_count or node == root:
            found.append(str(node))
        waiting.extend(node.children)
    return found


@pytest.mark.parametrize(
    ("first", "second", "language"),
    [
        ("int f(int a) { return a + 1; }", "int g() { if (x) { return b * 2; } return f(1) + 1; }", "java"),
        ("x = [i for i in y if i > 0]", "def f(x, *y):\n    return [x for x in y]", "python"),
        ("int F( { return }", "int F() { return 1 }", "csharp"),
        ("", "x", "javascript"),
    ],
)
def test_shapes_are_equal_where_s_expressions_are(first: str, second: str, language: str) -> None:
    numbers: dict = {}
    roots = [parse(code, language) for code in (first, second)]
    shapes = [Counter(subtree_shapes(root, numbers)) for root in roots]
    texts = [Counter(_slow_shapes(root)) for root in roots]
    assert [sorted(one.values()) for one in shapes] == [sorted(one.values()) for one in texts]
    assert (shapes[0] & shapes[1]).total() == (texts[0] & texts[1]).total()
