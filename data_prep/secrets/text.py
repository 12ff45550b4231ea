"""A text to be searched, its transformed copies that make searching fast, and its syntax by file name."""

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from data_prep.secrets.config import Kind


class Span(NamedTuple):
    """Bytes `start` to `end` are a secret of this kind."""

    start: int
    end: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Syntax:
    """Properties of a syntax. `bare_values`: values need no quotes. `angle`: `<` is an ordinary character in values."""

    bare_values: bool = False
    shell: bool = False
    angle: bool = True
    python: bool = False
    go: bool = False
    cpp: bool = False
    lock: bool = False


_CONFIG = "yaml yml eyaml ini cfg conf cnf cf config properties toml env npmrc pypirc netrc tfvars credentials pgpass"
_SHELL = "sh bash zsh ksh fish dockerfile makefile mk bats"
_MARKUP = (
    "xml html htm xhtml svg vue svelte jsx tsx xsl xslt xsd plist csproj vbproj resx xaml jsp wsdl ftl rss"
)
_CPP = "cpp cc cxx hpp hh hxx h c++"
_LOCKS = "lock sum map snap"
_LOCK_NAMES = frozenset(("package-lock.json", "packages.lock.json", "package.resolved", "cartfile.resolved"))

_BY_SUFFIX: dict[str, Syntax] = {
    **dict.fromkeys(_CONFIG.split(), Syntax(bare_values=True)),
    **dict.fromkeys(_SHELL.split(), Syntax(bare_values=True, shell=True, angle=False)),
    **dict.fromkeys(_MARKUP.split(), Syntax(angle=False)),
    **dict.fromkeys(_CPP.split(), Syntax(cpp=True)),
    **dict.fromkeys(_LOCKS.split(), Syntax(lock=True)),
    **dict.fromkeys(("py", "pyi", "pyx"), Syntax(python=True)),
    "go": Syntax(go=True),
}
_PLAIN = Syntax()


def syntax_of(path: str) -> Syntax:
    """Return the syntax by the file's suffix, or by its name if it has no suffix (Makefile, .env)."""
    name = path.rsplit("/", 1)[-1].lower()
    if name in _LOCK_NAMES or name.endswith("-lock.yaml"):
        return Syntax(lock=True)
    return _BY_SUFFIX.get(name.rsplit(".", 1)[-1], _PLAIN)


def _table(**classes: str) -> bytes:
    table = bytearray(b" " * 256)
    for representative, members in classes.items():
        for byte in members.encode():
            table[byte] = ord(representative)
    return bytes(table)


_LOWER = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"
# Lower case, with every digit a 0, so that one literal matches all digits and both cases.
_FOLD = bytes(48 if 48 <= byte <= 57 else byte + 32 if 65 <= byte <= 90 else byte for byte in range(256))
_RUNS = _table(a=_LOWER + _LOWER.upper() + _DIGITS + "+/=_-", **{'"': "\"'`", ".": "."})
_CASES = _table(a=_LOWER + _DIGITS, A=_LOWER.upper(), **{"-": "-"})


# Comments and string literals of Python. Only single characters are repeated possessively: groups were matched
# wrongly before Python 3.11.5 (CPython issue 106052). A quote without an end is skipped, so that broken code is
# handled, too.
_LITERAL = re.compile(
    rb"#[^\n]*+"
    rb'|"""[^"\\]*+(?:(?:\\.|"(?!""))[^"\\]*+)*"""'
    rb"|'''[^'\\]*+(?:(?:\\.|'(?!''))[^'\\]*+)*'''"
    rb'|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*"'
    rb"|'[^'\\\n]*+(?:\\.[^'\\\n]*+)*'",
    re.DOTALL,
)


class Text:
    """The bytes, and copies of the same length in which each class of characters is mapped to one character."""

    __slots__ = ("_literals", "cases", "data", "folded", "runs", "syntax")

    def __init__(self, data: bytes, syntax: Syntax) -> None:
        self.data = data
        self.syntax = syntax
        self._literals: tuple[list[int], list[int]] | None = None
        self.folded = data.translate(_FOLD)
        # Base64 characters (both alphabets) are "a", quotes are '"', a dot is itself.
        self.runs = data.translate(_RUNS)
        # Lower case and digits are "a", upper case is "A", a hyphen is itself.
        self.cases = data.translate(_CASES)

    def is_python_code(self, at: int) -> bool:
        """Return whether this is Python and `at` is neither in a literal nor in a comment."""
        if not self.syntax.python:
            return False
        if self._literals is None:
            matches = list(_LITERAL.finditer(self.data))
            self._literals = [match.start() for match in matches], [match.end() for match in matches]
        starts, ends = self._literals
        before = bisect_right(starts, at) - 1
        return before < 0 or at >= ends[before]
