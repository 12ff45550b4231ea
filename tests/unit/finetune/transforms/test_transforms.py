"""Transforms by their texts: what is changed, and what is left alone."""

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import UserError
from finetune.modalities.writing import Pair, transformed_items
from finetune.syntax import parse
from finetune.transforms.kinds import TRANSFORMS, transform

JAVA = """public int find(String name, int from) {
    int a = 3;
    int b = from * 2;
    for (int i = from; i < limit; i++) {
        if (compare(name, items[i])) { return i; } else { this.name = name; }
    }
    return a - b;
}
"""


@pytest.mark.parametrize("kind", TRANSFORMS)
def test_java_is_changed_the_same_for_a_seed_and_parses(kind: str) -> None:
    changed = transform(kind, JAVA, "java", 1)
    assert changed is not None
    assert changed == transform(kind, JAVA, "Java", 1)
    assert changed.split() != JAVA.split()
    assert parse(changed, "java") is not None


def _same(first: str | None, second: str) -> bool:
    return first is not None and first.split() == second.split()


@pytest.mark.parametrize(
    ("kind", "code", "expected"),
    [
        ("swap_branches", "int f() { if (a) b(); else if (c) d(); }",
         "int f() { if (!(a)) { if (c) d(); } else { b(); } }"),
        ("swap_branches", "int f() { if (a) b(); }", None),
        ("swap_branches", "int f() { if (a instanceof B b) b(); else d(); }", None),
        ("permute", "int f() { int a = 1; int b = a; }", None),
        ("permute", "int f() { int a = g(); int b = 1; }", None),
        ("permute", "int f() { try { int a = 1; int b = 2; int c = 3; } finally { } }", None),
        ("for_to_while", "int f() { for (int i = 0, j = 9; i < j; i++, j--) g(i); }",
         "int f() { { int i = 0, j = 9; while (i < j) { g(i); i++; j--; } } }"),
        ("for_to_while", "int f() { for (;;) { return 1; } }", "int f() { { while (true) { { return 1; } } } }"),
        # Java refuses what cannot be reached, and `continue` would skip the update.
        ("for_to_while", "int f() { for (;; i++) { return 1; } }", None),
        ("for_to_while", "int f() { for (;; i++) { if (a) return 1; else throw e; } }", None),
        ("for_to_while", "int f() { for (;; i++) { if (a) continue; g(); } }", None),
        ("for_to_while", "int f() { x: for (;; i++) { while (a) break x; } }", None),
        ("for_to_while", "int f() { for (String s : all) g(s); }", None),
        ("rename", "int f() { return this.a + a(b); }", None),
        ("rename", "int f(int a) { return this.a + a(a) + b.a; }", "int f(int v0) { return this.a + a(v0) + b.a; }"),
        # The second `x` is a field.
        ("rename", "int f() { { int x = 1; } return x; }", None),
        ("rename", "int f(int v0) { return v0; }", "int f(int v1) { return v1; }"),
        ("rename", 'int f(int a) { return g("v0", a); }', 'int f(int v1) { return g("v0", v1); }'),
        ("rename", "int f(int A) { switch (b) { case A: return 1; } return 2; }", None),
        ("rename", "Object f(int a) { return new Object() { int a; int g() { return a; } }; }", None),
        ("rename", "Object f() { return g(a -> a.a()); }", "Object f() { return g(v0 -> v0.a()); }"),
        ("rename", "A(int a) { this.a = a; }", "A(int v0) { this.a = v0; }"),
    ],
)  # fmt: skip
def test_java(kind: str, code: str, expected: str | None) -> None:
    versions = [transform(kind, code, "java", seed) for seed in range(6)]
    if expected is None:
        assert versions == [None] * 6
    else:
        assert all(_same(version, expected) for version in versions)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f(a):\n    return a.a(a=a)\n", None),
        ("def f(a):\n    return len(a.a)\n", "def f(v0):\n    return len(v0.a)\n"),
        ("def f():\n    global a\n    a = 1\n", None),
        ("def f():\n    import a\n    a = a.b\n", None),
        ("def f():\n    a = 1\n    return locals()\n", None),
        ("def f():\n    a = 1\n    return f'{a=}'\n", None),
        ("def f():\n    a = 1\n    class B:\n        a = 2\n    return B\n", None),
        ("def f(a=a):\n    return a\n", None),
        ("def f(x: x):\n    return x\n", None),
        ("def f(self):\n    return self\n", None),
        # Bound in the comprehension alone: outside of it the name is another's.
        ("def f():\n    return [a for a in b], a\n", None),
        (
            "def f():\n    with b as a:\n        return a\n",
            "def f():\n    with b as v0:\n        return v0\n",
        ),
        ("a = 1\nb = a\n", None),
        (
            "class A:\n    def f(self, a):\n        self.a = a\n",
            "class A:\n    def f(self, v0):\n        self.a = v0\n",
        ),
    ],
)
def test_python_renaming(code: str, expected: str | None) -> None:
    assert transform("rename", code, "python", 1) == expected


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("dead_code", "class A:\n    a = 1\n    b = 2\n"),
        ("dead_code", 'def f():\n    """Only this."""\n'),
        ("permute", "def f(x):\n    a = x.y\n    b = 1\n"),
        ("permute", "def f():\n    global a\n    a = 1\n    b = 2\n"),
        ("permute", "def f():\n    class A:\n        a = 1\n        b = 2\n"),
        ("for_to_while", "def f(a):\n    for b in a:\n        pass\n    else:\n        g()\n"),
        ("for_to_while", "async def f(a):\n    async for b in a:\n        pass\n"),
        ("for_to_while", "def f(iter):\n    for b in iter:\n        pass\n"),
        ("for_to_while", "for a in b:\n    pass\n"),
        (
            "swap_branches",
            "def f(a):\n    if a:\n        b()\n    elif c:\n        d()\n    else:\n        e()\n",
        ),
    ],
)
def test_python_left_alone(kind: str, code: str) -> None:
    assert [transform(kind, code, "python", seed) for seed in range(6)] == [None] * 6


def test_python_loop_on_one_line_and_nested() -> None:
    code = "def f(a):\n  for b in a: g(b)\n  for b in a:  # all\n      for c in 1, 2:\n          g(c)\n"
    changed = transform("for_to_while", code, "python", 0)
    assert changed is not None
    ast.parse(changed)
    assert "for " not in changed


def test_what_is_no_code_or_has_no_transforms() -> None:
    assert transform("rename", "def f(:", "python", 0) is None
    assert transform("rename", "\ud800", "python", 0) is None
    assert transform("rename", "func f(a int) int { return a }", "go", 0) is None
    assert transform("rename", "x", "nonesuch", 0) is None
    with pytest.raises(UserError, match="no transform 'shuffle': choose from rename"):
        transform("shuffle", "", "python", 0)


@settings(max_examples=80, deadline=None)
@given(
    text=st.text(max_size=60),
    kind=st.sampled_from(list(TRANSFORMS)),
    language=st.sampled_from(["java", "python"]),
)
def test_any_text_gives_text_that_parses_or_none(text: str, kind: str, language: str) -> None:
    changed = transform(kind, text, language, 0)
    assert changed is None or parse(changed, language) is not None


def test_items_that_can_be_changed_come_with_their_originals() -> None:
    items = [Pair("a", "int f(int a) { return a; }", ("x",)), Pair("b", "int f() { return 1; }", ("y",))]
    changed = transformed_items(items, "rename", "java", 0)
    assert changed.before == items[:1]
    assert changed.after == [Pair("a", "int f(int v0) { return v0; }", ("x",))]
