"""Which form of line completion belongs to which language."""

import json
from pathlib import Path

import numpy as np
import pytest

from cluster.errors import UserError
from finetune.formats.published_lines import (
    Literals,
    java_corpus_cuts,
    java_corpus_tokens,
    language_of_items,
    line_ends,
    published_lines,
    py150_cuts,
    py150_tokens,
    read_literals,
)
from finetune.metrics.edit import plain_literals
from finetune.modalities.writing import Pair
from finetune.tasks.line_completion import cut_tokens
from tests.task_data import TASK_DATA, needs_task_data


def test_python_and_java_have_forms() -> None:
    assert published_lines("py").language == "Python"
    assert published_lines("Java").language == "Java"
    with pytest.raises(UserError, match=r"task.literals: .* items in Go: set task.language") as caught:
        published_lines("Go")
    assert "\n" not in str(caught.value)


def test_items_tell_their_form_where_they_do() -> None:
    java = [Pair("1", "<s> a ;", ("b ;",)), Pair("2", "<s> a {", ("b }",))]
    assert language_of_items(java) == "Java"
    assert language_of_items([*java, Pair("3", "<s> x <EOL> y", ("= z",))]) == "Python"
    assert language_of_items([*java, Pair("3", "<s> x", ("= z",))]) is None
    assert language_of_items([]) is None


def test_cuts_that_are_alike_give_one_item() -> None:
    for seed in range(5):
        cuts = [(1, 3), (1, 3), (1, 3), (0, 3)]
        pairs = list(cut_tokens(["a", "b", ";"], cuts, np.random.default_rng(seed), 2))
        assert [(pair.key, pair.source, pair.references) for pair in pairs] == [
            ("0", "<s>", ("a b ;",)),
            ("1", "<s> a", ("b ;",)),
        ]


@pytest.fixture(scope="module")
def java_items() -> list[tuple[list[str], list[str]]]:
    """(tokens before, tokens to write) of the published items, without `<s>`."""
    lines = (_folder() / "dev.first1500.json").read_text().splitlines()
    items = [json.loads(line) for line in lines]
    return [(item["input"].split(" ")[1:], item["gt"].split(" ")) for item in items]


@needs_task_data
def test_published_java_is_written_the_same_again(java_items: list[tuple[list[str], list[str]]]) -> None:
    """As far as what is closed by braces alone parses."""
    literals = read_literals(_folder() / "literals.json")
    same = 0
    for before, written in java_items:
        tokens = [*before, *written]
        tokens += ["}"] * (tokens.count("{") - tokens.count("}"))
        found = java_corpus_tokens(_source(tokens), literals)
        assert found in ([], tokens)
        same += found == tokens
    assert same > 1300


@needs_task_data
def test_every_published_java_completion_is_one_of_our_cuts(
    java_items: list[tuple[list[str], list[str]]],
) -> None:
    for before, written in java_items:
        tokens = [*before, *written]
        assert (len(before), len(tokens)) in java_corpus_cuts(tokens)


@needs_task_data
def test_cuts_of_the_published_files_are_distributed_as_the_published_ones(
    java_items: list[tuple[list[str], list[str]]],
) -> None:
    """Behind the imports, for only the beginnings of files are published."""
    generator = np.random.default_rng(0)
    cut = []
    for before, written in java_items:
        tokens = [*before, *written]
        pairs = cut_tokens(tokens, java_corpus_cuts(tokens), generator, 8) if len(before) >= 150 else ()
        cut += [(pair.source.split(" "), pair.references[0].split(" ")) for pair in pairs]
    ours, theirs = _shape(cut), _shape([item for item in java_items if len(item[0]) >= 150])
    # Some three standard errors of the published items.
    assert (np.abs(ours - theirs) < (1, 0.04, 0.03, 0.055)).all()


def _folder() -> Path:
    return TASK_DATA / "codexglue-line-completion" / "javaCorpus"


def _source(tokens: list[str]) -> str:
    """Java that becomes these tokens."""
    text = " ".join(tokens).replace("@ interface", "@interface")
    text = text.replace("> > >", ">>>").replace("> >", ">>")
    # Values that are not listed.
    text = text.replace("'<STR_LIT>'", r"'\u0000'").replace("<STR_LIT>", "not listed")
    text = text.replace("<NUM_LIT>", "0x7eL").replace("<CHAR_LIT>", "$")
    return plain_literals(text).replace("U+0020", " ").replace("U+002C", ",")


def _shape(items: list[tuple[list[str], list[str]]]) -> np.ndarray:
    """Mean tokens to write, the share that begins a statement, that ends in `}`, and that goes over a `{`."""
    rows = [
        (len(new), old[-1] in (";", "}"), new[-1] == "}", "{" in new)
        for old, new in items
        if not {"class", "interface", "enum"}.isdisjoint(old)
    ]
    return np.array(rows, np.float64).mean(axis=0)


KEPT = Literals(strings=frozenset(("utf-8", "aU+002CU+0020b")), numbers=frozenset(("1",)))


def test_tokens_lines_and_literals() -> None:
    text = '"""Doc\nstring."""\n\n# why\ndef f(a,\n      b=1): \n    x = u"utf-8" + \\\n        \'a, b\' + "no" + 2\n'
    assert " ".join(py150_tokens(text, KEPT)) == (
        '"""<STR_LIT>""" <EOL> def f ( a , <EOL> b = <NUM_LIT:1> ) : <EOL> '
        'x = u"<STR_LIT:utf-8>" + \'<STR_LIT:aU+002CU+0020b>\' + "<STR_LIT>" + <NUM_LIT>'
    )
    assert py150_tokens("f(", KEPT) == []


def test_cuts_go_to_the_end_of_the_line() -> None:
    assert line_ends(["a", "<EOL>", "b", "c"]) == [1, 1, 4, 4]
    assert line_ends([]) == []
    assert py150_cuts(["a", "b", "<EOL>", "c", "d"]) == [(1, 2), (3, 5), (4, 5)]


def test_listed_values_are_kept() -> None:
    literals = Literals(frozenset(("aU+002CU+0020b", "")), frozenset(("1L",)), frozenset(("U+0020",)))
    assert [literals.string(text) for text in ("a, b", "a,b", "")] == [
        "<STR_LIT:aU+002CU+0020b>",
        "<STR_LIT>",
        "<STR_LIT:>",
    ]
    assert [literals.number(text) for text in ("1L", "1")] == ["<NUM_LIT:1L>", "<NUM_LIT>"]
    assert [literals.character(text) for text in (" ", ",")] == ["<CHAR_LIT:U+0020>", "<CHAR_LIT>"]


def test_a_list_of_characters_is_javas_only(tmp_path: Path) -> None:
    path = tmp_path / "literals.json"
    path.write_text('{"str": ["a"], "num": ["1"], "regex": []}')
    assert read_literals(path) == Literals(frozenset("a"), frozenset("1"), frozenset())
    path.write_text('{"str": ["a"], "num": ["1"], "char": ["b"]}')
    assert read_literals(path) == Literals(frozenset("a"), frozenset("1"), frozenset("b"))


@pytest.mark.parametrize(
    "text",
    ["[]", "{}", '{"str": ["a"], "num": [1]}', '{"str": [], "num": [], "char": "ab"}', '{"str": []}', "x"],
)
def test_another_file_than_literals_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "literals.json").write_text(text)
    with pytest.raises(UserError, match="literals.json") as caught:
        read_literals(tmp_path / "literals.json")
    assert "\n" not in str(caught.value)
