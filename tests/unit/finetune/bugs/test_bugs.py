"""Generated bugs."""

import ast
import inspect
import json.encoder
import statistics
import textwrap
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import UserError
from finetune.bugs.abstraction import abstracted_pair, idioms_of
from finetune.bugs.corpus import functions_of, generated_bugs
from finetune.bugs.generator import Bug, make_bugs
from finetune.bugs.kinds import KINDS
from finetune.syntax import edited, parse

JAVA = """public int find(String name, int from, int limit) {
    if (name == null) {
        return -1;
    }
    for (int i = from; i < limit && !done(i); i++) {
        log.add(i, name);
        if (compare(name, items[i + 1]) == 0) {
            count(1);
            return i;
        }
    }
    return -1;
}
"""
PYTHON = '''def find(name, items, start=0):
    """Where it is."""
    if name is None:
        return -1
    count = 0
    for index in range(start, len(items) - 1):
        if not items[index] and index > 0:
            log(index, name)
            continue
        if items[index] == name:
            count += 1
            return index
    return True
'''
JAVASCRIPT = """function find(name, items) {
  if (name === undefined) { return -1; }
  for (let i = 0; i < items.length; i++) {
    if (!items[i] || match(items[i], name)) { note(i); return i + 1; }
  }
  return false;
}
"""
CSHARP = """public int Find(string name, int from){if (name == null){Log(0);return -1;}int left = from;
while (left > 0 && !Done(left, name)){left = left - 1;Log(left);}return left;}
"""


def one_bug(code: str, language: str, seed: int) -> Bug | None:
    return next(iter(make_bugs(code, language, seed, 1)), None)


SAMPLES = {"java": JAVA, "python": PYTHON, "javascript": JAVASCRIPT, "csharp": CSHARP}


@pytest.mark.parametrize("language", SAMPLES)
def test_every_version_parses_differs_and_all_kinds_come(language: str) -> None:
    code = SAMPLES[language]
    kinds = Counter()
    for seed in range(200):
        bug = one_bug(code, language, seed)
        assert bug is not None
        assert bug.code.split() != code.split()
        assert parse(bug.code, language) is not None
        if language == "python":
            ast.parse(bug.code)
        kinds[bug.kind] += 1
    assert set(kinds) == set(KINDS)
    # Drawn by kind, not by place: the rarest is no accident.
    assert min(kinds.values()) >= 8


@pytest.mark.parametrize("language", SAMPLES)
def test_same_seed_same_bug_and_seeds_differ(language: str) -> None:
    bugs = [one_bug(SAMPLES[language], language, seed) for seed in range(20)]
    assert bugs == [one_bug(SAMPLES[language], language, seed) for seed in range(20)]
    assert len({bug.code for bug in bugs if bug is not None}) > 5


@pytest.mark.parametrize("language", SAMPLES)
def test_several_versions_are_distinct_and_begin_alike(language: str) -> None:
    bugs = make_bugs(SAMPLES[language], language, 3, 12)
    assert len({bug.code for bug in bugs}) == len(bugs) == 12
    assert make_bugs(SAMPLES[language], language, 3, 5) == bugs[:5]
    assert make_bugs("int f() { return 7; }", "java", 3, 50) != []
    assert len(make_bugs("int f() { return 7; }", "java", 3, 50)) < 10


def _all_of(kind: str, code: str, language: str) -> set[str]:
    parsed = parse(code, language)
    assert parsed is not None
    versions = (edited(parsed, site) for site in KINDS[kind](parsed, parsed.root))
    return {" ".join(version.split()) for version in versions if version is not None}


@pytest.mark.parametrize(
    ("kind", "language", "code", "expected"),
    [
        ("wrong_operator", "java", "int f(int a) { return a < 1; }", {"a <= 1", "a > 1"}),
        ("wrong_operator", "java", 'String f(int a) { return "x" + a; }', set()),
        ("off_by_one", "java", "int f(int[] a) { return a[0]; }", {"a[1]"}),
        ("off_by_one", "java", "int f(int[] a) { return a[2]; }", {"a[1]", "a[3]"}),
        ("wrong_constant", "java", "boolean f() { return true; }", {"return false"}),
        ("swapped_arguments", "java", "void f() { g(a, a, b); }", {"g(a, b, a)"}),
        ("swapped_arguments", "python", "def f(a, b):\n    g(a, *b, k=a)\n", set()),
        ("wrong_negation", "java", "boolean f() { return !a; }", {"return a;"}),
        ("wrong_negation", "java", "void f() { if (a) g(); }", {"if (!(a)) g()"}),
        ("wrong_negation", "csharp", "void f(){ if (a) g(); }", {"if (!(a)) g()"}),
        ("wrong_negation", "python", "def f(a):\n    return not a\n", {"return a"}),
        ("wrong_variable", "java", "int f(int a, int b, char c) { return a; }", {"return b"}),
        ("wrong_variable", "python", "def f(self, a, b):\n    return a.b(b=1)\n", {"return b.b(b=1)"}),
        ("missing_check", "java", "void f() { if (a != null) { g(); } }", {"void f() { { g(); } }"}),
        ("missing_check", "java", "void f() { if (a == null) return; g(); }", {"void f() { g(); }"}),
        ("missing_check", "python", "def f(a):\n    return a is None or a.b\n", {"return a.b"}),
        ("missing_return", "python", "def f(a):\n    if a:\n        g()\n        return 1\n    return 2\n",
         {"def f(a): if a: g() return 2"}),
        ("missing_call", "java", "void f() { g(); x = h(); }", {"void f() { x = h(); }"}),
        ("missing_call", "python", "def f(a):\n    g(a)\n", set()),
    ],
)  # fmt: skip
def test_each_kind_does_what_it_says(kind: str, language: str, code: str, expected: set[str]) -> None:
    versions = _all_of(kind, code, language)
    assert len(versions) == len(expected)
    for part in expected:
        assert any(part in version for version in versions)


@settings(max_examples=60, deadline=None)
@given(text=st.text(max_size=80), seed=st.integers(0, 10), language=st.sampled_from([*SAMPLES, "nonesuch"]))
def test_any_text_gives_a_bug_that_parses_or_none(text: str, seed: int, language: str) -> None:
    bug = one_bug(text, language, seed)
    if bug is not None:
        assert bug.code.split() != text.split()
        assert parse(bug.code, language) is not None


def test_real_python_functions_keep_compiling() -> None:
    num_bugs = 0
    for module in (statistics, textwrap, json.encoder):
        for number, code in enumerate(functions_of(inspect.getsource(module), "python")):
            bug = one_bug(code, "python", number)
            if bug is not None:
                ast.parse(bug.code)
                num_bugs += 1
    assert num_bugs > 40


def test_functions_of_a_file_are_its_outermost_dedented() -> None:
    text = (
        "class A:\n    def f(self):\n        def g():\n            pass\n        return g\n\ndef h(): pass\n"
    )
    assert functions_of(text, "python") == [
        "def f(self):\n    def g():\n        pass\n    return g",
        "def h(): pass",
    ]
    assert functions_of("class A { int f() { return 1; } }", "java") == []
    assert functions_of("class A {\n  int f() { return 1; }\n}", "java") == ["int f() { return 1; }"]
    assert functions_of("def f(:", "python") == []


def test_pairs_are_distinct_counted_and_leave_out_what_is_judged() -> None:
    functions = [
        JAVA,
        JAVA,
        JAVA.replace("find", "search"),
        "no java at all, but long enough to be read",
        "int x;",
    ]
    made = generated_bugs(functions, "java", 5, most=10)
    assert [pair.references[0] for pair in made.pairs] == [JAVA, JAVA.replace("find", "search")]
    assert sum(made.num_by_kind.values()) == 2
    assert made == generated_bugs(functions, "java", 5, most=10)
    several = generated_bugs(functions, "java", 5, most=10, each=4)
    assert len({pair.source for pair in several.pairs}) == len({pair.key for pair in several.pairs}) == 8
    fewer = generated_bugs(functions, "java", 5, most=3, each=4)
    assert len(fewer.pairs) == sum(fewer.num_by_kind.values()) == 3
    assert len(generated_bugs(functions, "java", 5, most=10, without=[JAVA]).pairs) == 1
    with pytest.raises(UserError, match="no bug could be made"):
        generated_bugs(["int x;"], "java", 5, most=10)


def test_abstraction_shares_names_and_keeps_idioms() -> None:
    right = 'private Foo get(Bar b, String s) { int i = b.size(i, "x"); return new Foo(s, s, "x"); }'
    buggy = right.replace("s, s", "s, b")
    idioms = idioms_of(["get ( i java.lang.String VAR_1 ) ;"] * 5)
    assert "VAR_1" not in idioms
    assert abstracted_pair(buggy, right, "java", idioms) == (
        "private TYPE_1 get ( TYPE_2 VAR_1 , java.lang.String VAR_2 ) { int i = VAR_1 . METHOD_1 ( i , STRING_1 ) ; "
        "return new TYPE_1 ( VAR_2 , VAR_1 , STRING_1 ) ; }",
        "private TYPE_1 get ( TYPE_2 VAR_1 , java.lang.String VAR_2 ) { int i = VAR_1 . METHOD_1 ( i , STRING_1 ) ; "
        "return new TYPE_1 ( VAR_2 , VAR_2 , STRING_1 ) ; }",
    )
    assert abstracted_pair("int f() { return 71; }", "int f() { return 71 ; }", "java") is None
    assert abstracted_pair("def f(): pass", "def f(): return", "python") is None
