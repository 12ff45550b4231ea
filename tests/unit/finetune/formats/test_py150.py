"""Python as the line completion set writes it."""

from finetune.formats.published_lines import Literals, line_ends, py150_cuts, py150_tokens

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
