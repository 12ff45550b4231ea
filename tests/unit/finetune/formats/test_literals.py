"""Literals that keep their value, and the file that lists them."""

from pathlib import Path

import pytest

from cluster.errors import UserError
from finetune.formats.published_lines import Literals, read_literals


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
