"""Import targets of a source file, found without parsing it, and the families of languages that import alike."""

import re
from collections.abc import Callable, Iterator
from typing import Literal

Family = Literal["python", "script", "java", "c", "go"]
_FAMILY_OF: dict[str, Family] = {
    "python": "python",
    "cython": "python",
    "javascript": "script",
    "typescript": "script",
    "jsx": "script",
    "tsx": "script",
    "vue": "script",
    "svelte": "script",
    "java": "java",
    "kotlin": "java",
    "groovy": "java",
    "c": "c",
    "c++": "c",
    "cpp": "c",
    "objective-c": "c",
    "objective-c++": "c",
    "opencl": "c",
    "cuda": "c",
    "go": "go",
}


def family_of(language: str) -> Family | None:
    """Return the family of a language, in any case; None if there is none."""
    return _FAMILY_OF.get(language.lower())


MAX_IMPORTS = 512
"""Further targets of a file are left out."""
MAX_TARGET_BYTES = 256
"""A longer target is no real import."""
_MAX_CANDIDATES = 8192
_MAX_INDENT_BYTES = 256
_MAX_CLAUSE_BYTES = 16_384
_Finder = Callable[[bytes], Iterator[bytes]]


def imports_of(language: str, data: bytes) -> tuple[str, ...]:
    """Return the targets that `data` imports, as written, each once and in order; at most MAX_IMPORTS.

    Python: dotted names with the dots of relative ones kept, one for each name of a `from` import
    ("pkg.mod.name", "..mod.name", "pkg.mod" for a star). JavaScript and TypeScript: module specifiers.
    Java (Kotlin, Groovy): dotted names, ".*" kept. C and C++: the path, with angle brackets if it has them. Go: import
    paths. Other languages: none. Strings that look like an import statement count as one.
    """
    family = family_of(language)
    if family is None:
        return ()
    found: dict[bytes, None] = {}
    for target in _FINDERS[family](data):
        if 0 < len(target) <= MAX_TARGET_BYTES:
            found[target] = None
            if len(found) >= MAX_IMPORTS:
                break
    return tuple(text for target in found if (text := _printable(target)))


def _printable(target: bytes) -> str:
    """Return the target as text, empty if it is not UTF-8 or not printable, which no real path is."""
    try:
        text = target.decode()
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() else ""


def _places(data: bytes, word: bytes) -> Iterator[int]:
    """Yield the positions of `word`, at most _MAX_CANDIDATES."""
    place = data.find(word)
    for _ in range(_MAX_CANDIDATES):
        if place < 0:
            return
        yield place
        place = data.find(word, place + len(word))


def _line_start(data: bytes, place: int) -> int:
    """Return the start of the line of `place`, -1 if that is too far back for a statement."""
    earliest = max(0, place - _MAX_INDENT_BYTES)
    newline = data.rfind(b"\n", earliest, place)
    return newline + 1 if newline >= 0 or earliest == 0 else -1


_PYTHON_CLAUSE = rb"[^\n#;\\]{0,4096}(?:\\\r?\n[^\n#;\\]{0,4096}){0,64}"
_PYTHON_FROM = re.compile(
    rb"[ \t]*from[ \t]+(\.*)[ \t]*([\w.]*)(?:[ \t]|\\\r?\n)+c?import\b[ \t]*(?:\(([^)]{0,%d})|(%s))"
    % (_MAX_CLAUSE_BYTES, _PYTHON_CLAUSE)
)
_PYTHON_IMPORT = re.compile(rb"[ \t]*c?import[ \t]+(%s)" % _PYTHON_CLAUSE)
_PYTHON_COMMENT = re.compile(rb"#[^\n]*|\\\r?\n")
_PYTHON_NAME = re.compile(rb"[\w.]+")


def _python(data: bytes) -> Iterator[bytes]:
    done = 0  # the end of the last clause, which is not searched again
    for place in _places(data, b"import"):
        start = _line_start(data, place) if place >= done else -1
        if start > 0 and data[start - 3 : start].rstrip(b"\r\n").endswith(b"\\"):
            start = _line_start(data, start - 1)
        if start < 0:
            continue
        if match := _PYTHON_FROM.match(data, start):
            dots, module, in_brackets, bare = match.groups()
            names = _python_names(in_brackets if bare is None else bare)
            yield from _python_targets(dots, module, names)
            done = match.end()
        elif match := _PYTHON_IMPORT.match(data, start):
            yield from _python_names(match[1])
            done = match.end()


def _python_names(clause: bytes) -> Iterator[bytes]:
    """Yield the names in a clause such as "a.b as c, d  # why"; none for a star."""
    for part in _PYTHON_COMMENT.sub(b" ", clause).split(b","):
        if name := _PYTHON_NAME.match(part.strip()):
            yield name[0]


def _python_targets(dots: bytes, module: bytes, names: Iterator[bytes]) -> Iterator[bytes]:
    stem = dots + module
    separator = b"." if module else b""
    num_names = 0
    for name in names:
        num_names += 1
        yield stem + separator + name
    if num_names == 0:
        yield stem


_SCRIPT_STRING = rb"[ \t\r\n]{0,64}([\"'`])([^\"'`\r\n]{1,%d})\1" % MAX_TARGET_BYTES
_SCRIPT_PATTERNS = {
    b"from": re.compile(rb"\bfrom" + _SCRIPT_STRING),
    b"require": re.compile(rb"\brequire[ \t\r\n]{0,64}\(" + _SCRIPT_STRING),
    b"import": re.compile(rb"\bimport[ \t\r\n]{0,64}\(?" + _SCRIPT_STRING),
}
_SCRIPT_COMMENT = re.compile(rb"[ \t]*(?://|\*)")


def _script(data: bytes) -> Iterator[bytes]:
    found: list[tuple[int, bytes]] = []
    for word, pattern in _SCRIPT_PATTERNS.items():
        for place in _places(data, word):
            match = pattern.match(data, place)
            if match and not _is_commented(data, place):
                found.append((place, match[2]))
    for _, target in sorted(found):
        yield target


def _is_commented(data: bytes, place: int) -> bool:
    start = _line_start(data, place)
    return start >= 0 and _SCRIPT_COMMENT.match(data, start, place) is not None


_JAVA_IMPORT = re.compile(rb"[ \t]*import[ \t]+(?:static[ \t]+)?([\w$]+(?:\.[\w$]+)*(?:\.\*)?)")


def _java(data: bytes) -> Iterator[bytes]:
    for place in _places(data, b"import"):
        start = _line_start(data, place)
        if start >= 0 and (match := _JAVA_IMPORT.match(data, start)):
            yield match[1]


_C_INCLUDE = re.compile(
    rb"[ \t]*#[ \t]*(?:include|import|include_next)[ \t]*(?:\"([^\"\r\n]{1,%d})\"|(<[^>\r\n]{1,%d}>))"
    % (MAX_TARGET_BYTES, MAX_TARGET_BYTES - 2)
)


def _c(data: bytes) -> Iterator[bytes]:
    for place in _places(data, b"include"):
        start = _line_start(data, place)
        if start >= 0 and (match := _C_INCLUDE.match(data, start)):
            yield match[1] or match[2]


_GO_IMPORT = re.compile(
    rb"import[ \t]*(?:(?:[\w.]+[ \t]+)?[\"`]([^\"`\r\n]{1,%d})[\"`]|\(([^)]{0,%d})\))"
    % (MAX_TARGET_BYTES, _MAX_CLAUSE_BYTES)
)
_GO_SPEC = re.compile(
    rb"^[ \t]*(?:[\w.]+[ \t]+)?[\"`]([^\"`\r\n]{1,%d})[\"`]" % MAX_TARGET_BYTES, re.MULTILINE
)


def _go(data: bytes) -> Iterator[bytes]:
    done = 0
    for place in _places(data, b"import"):
        if place < done:
            continue
        if (place == 0 or data[place - 1] == 0x0A) and (match := _GO_IMPORT.match(data, place)):
            if match[1] is not None:
                yield match[1]
            else:
                yield from _GO_SPEC.findall(match[2])
            done = match.end()


_FINDERS: dict[Family, _Finder] = {"python": _python, "script": _script, "java": _java, "c": _c, "go": _go}
