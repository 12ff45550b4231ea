"""Python as the line completion set writes it."""

from pathlib import Path

import pytest

from cluster.errors import UserError
from finetune.formats.py150 import Literals, line_ends, py150_tokens, read_literals

KEPT = Literals(strings=frozenset(("utf-8", "aU+002CU+0020b")), numbers=frozenset(("1",)))


def test_tokens_lines_and_literals() -> None:
    text = '"""Doc\nstring."""\n\n# why\ndef f(a,\n      b=1): \n    x = u"utf-8" + \\\n        \'a, b\' + "no" + 2\n'
    assert " ".join(py150_tokens(text, KEPT)) == (
        '"""<STR_LIT>""" <EOL> def f ( a , <EOL> b = <NUM_LIT:1> ) : <EOL> '
        'x = u"<STR_LIT:utf-8>" + \'<STR_LIT:aU+002CU+0020b>\' + "<STR_LIT>" + <NUM_LIT>'
    )
    assert py150_tokens("f(", KEPT) == []


def test_line_ends() -> None:
    assert line_ends(["a", "<EOL>", "b", "c"]) == [1, 1, 4, 4]
    assert line_ends([]) == []


@pytest.mark.parametrize("text", ["[]", "{}", '{"str": ["a"], "num": [1]}', "x"])
def test_another_file_than_literals_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "literals.json").write_text(text)
    with pytest.raises(UserError, match="literals.json"):
        read_literals(tmp_path / "literals.json")
