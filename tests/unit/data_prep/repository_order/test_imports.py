import ast
import sysconfig
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.repository_order.imports import MAX_IMPORTS, MAX_TARGET_BYTES, imports_of

PYTHON = b"""\
from __future__ import annotations
import os, sys as system  # both
import a.b.c
from . import near
from ..up.there import (one, two as three,  # why
    four,
)
from lib.star import *
from long \\
    import continued
from long import name, \\
    other
if True:
    import inside
\tfrom tab import x
text = "import not_this"
# import nor_this
important = from_here
"""


def test_python_imports_are_dotted_names_with_relative_dots_kept() -> None:
    assert imports_of("python", PYTHON) == (
        "__future__.annotations",
        "os",
        "sys",
        "a.b.c",
        ".near",
        "..up.there.one",
        "..up.there.two",
        "..up.there.four",
        "lib.star",
        "long.continued",
        "long.name",
        "long.other",
        "inside",
        "tab.x",
    )


def test_script_imports_are_specifiers_of_import_export_and_require() -> None:
    data = b"""
import x from "./x.js"; import './side'
import {
  a,
  b,
} from '../multi';
export * from "./again"
const y = require( 'plain' ), z = await import(`./lazy`);
// import old from './commented'
 * require('./in_a_comment')
Array.from("abc"); requires = 'no'; myrequire('no')
import "./x.js"
"""
    wanted = ("./x.js", "./side", "../multi", "./again", "plain", "./lazy")
    assert imports_of("typescript", data) == wanted
    assert imports_of("javascript", data) == wanted


def test_java_imports_are_qualified_names() -> None:
    data = b"package a;\nimport a.b.C;\n  import static a.D.max;\r\nimport a.e.*;\n// import a.F;\nclass important {}"
    assert imports_of("java", data) == ("a.b.C", "a.D.max", "a.e.*")


def test_c_includes_keep_their_angle_brackets() -> None:
    data = b'#include "x/y.h"\n  #  include <stdio.h>\n#include <a/b.h> // c\n//#include "no.h"\n#include MACRO\n'
    assert imports_of("c", data) == imports_of("c++", data) == ("x/y.h", "<stdio.h>", "<a/b.h>")


def test_go_imports_are_paths_from_lines_and_blocks() -> None:
    data = (
        b'package a\n\nimport "fmt"\nimport (\n\t"os"\n\tx "corp.com/m/x" // why\n\t_ `raw/y`\n\t// "no"\n)\n'
    )
    assert imports_of("go", data) == ("fmt", "os", "corp.com/m/x", "raw/y")


def test_other_languages_import_nothing() -> None:
    assert imports_of("markdown", PYTHON) == ()


def test_targets_are_bounded_in_number_and_length() -> None:
    many = b"".join(b"import m%d\n" % i for i in range(3 * MAX_IMPORTS))
    assert imports_of("python", many) == tuple(f"m{i}" for i in range(MAX_IMPORTS))
    assert imports_of("python", b"import " + b"a" * (MAX_TARGET_BYTES + 1)) == ()


def test_targets_that_are_not_text_are_left_out() -> None:
    assert imports_of("c", b'#include "a\xff.h"\n#include "b\x07.h"\n#include "\xc3\xa4.h"\n') == (
        "\u00e4.h",
    )


def test_python_imports_are_those_of_the_syntax_tree_on_the_standard_library() -> None:
    """Except for the few on one line with other statements, or in strings."""
    num_wanted = num_found = num_extra = 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        data = path.read_bytes()
        wanted = _from_syntax_tree(data)
        found = set(imports_of("python", data))
        num_wanted += len(wanted)
        num_found += len(wanted & found)
        num_extra += len(found - wanted)
    assert num_wanted > 1000
    assert num_found >= 0.995 * num_wanted
    assert num_extra <= 0.02 * num_wanted


def _from_syntax_tree(data: bytes) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(data)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            stem = "." * node.level + (node.module or "")
            separator = "." if node.module else ""
            names |= {stem if alias.name == "*" else stem + separator + alias.name for alias in node.names}
    return names


_WORDS = [
    b"import", b"from", b"require", b"include", b"#", b"(", b")", b'"', b"'", b".", b",", b"\\", b" ", b"\t",
    b"\n", b"\r\n", b"*", b"a", b"\xff", b"<", b">", b";",
]  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(_WORDS), max_size=60).map(b"".join))
@pytest.mark.parametrize("language", ["python", "javascript", "java", "c", "go"])
def test_any_bytes_give_distinct_printable_targets(language: str, data: bytes) -> None:
    targets = imports_of(language, data)
    assert len(set(targets)) == len(targets)
    assert all(target and target.isprintable() for target in targets)


HOSTILE = {
    "open brackets": b"from a import (",
    "continued lines": b"from a import b,\\\n",
    "words": b"import",
    "dots": b"import " + b"." * 200 + b"\n",
    "open strings": b"import '",
    "directives": b"#include <",
    "blocks": b'import (\n"a"\n',
    "indent": b" " * 255 + b"import",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_adversarial_bytes_take_no_more_than_a_second_per_four_megabytes(name: str) -> None:
    data = HOSTILE[name] * (4_000_000 // len(HOSTILE[name]))
    start_s = time.process_time()
    for language in ("python", "javascript", "java", "c", "go"):
        imports_of(language, data)
    assert time.process_time() - start_s < 5
