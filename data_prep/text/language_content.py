"""Languages by the first kilobytes of a file, where its name allows several."""

import re
from collections.abc import Callable

from data_prep.text.language_names import BY_INTERPRETER

_Choice = Callable[[bytes], str | None]

_SHEBANG = re.compile(rb"#![ \t]*(\S+)(.*)")
_VERSION = re.compile(r"[-\d.]+$")
_MODELINE = re.compile(
    rb"-\*-[ \t]*(?:.*?\bmode:[ \t]*)?([A-Za-z+#-]+)[ \t]*(?:;.*?)?-\*-|\bvim?:.*?\b(?:ft|filetype|syntax)=(\w+)"
)
_MODES = {
    "c": "C",
    "c++": "C++",
    "cpp": "C++",
    "cmake": "CMake",
    "emacs-lisp": "Emacs Lisp",
    "javascript": "JavaScript",
    "js": "JavaScript",
    "lisp": "Common Lisp",
    "lua": "Lua",
    "makefile": "Makefile",
    "make": "Makefile",
    "nroff": "Roff",
    "objc": "Objective-C",
    "perl": "Perl",
    "cperl": "Perl",
    "python": "Python",
    "ruby": "Ruby",
    "scheme": "Scheme",
    "sh": "Shell",
    "shell-script": "Shell",
    "sql": "SQL",
    "tcl": "Tcl",
    "xml": "XML",
    "yaml": "YAML",
}

_OBJECTIVE_C = re.compile(
    rb"^[ \t]*@(?:interface|implementation|protocol|class|import|end)\b|^[ \t]*#\s*import\b", re.M
)
_CPP = re.compile(
    rb"^[ \t]*(?:namespace\b|template\s*<|class\s+\w+[^;(]*[{:\n]|using\s+(?:namespace\b|\w+\s*=)"
    rb"|(?:public|private|protected)\s*:|\}\s*//\s*namespace|enum\s+class\b|constexpr\b)"
    rb"|\bstd::|\b\w+::\w+|\boperator\s*[=+\-<>(\[!*]|\b(?:static|dynamic|reinterpret|const)_cast\s*<"
    rb"|^[ \t]*#\s*include\s*<(?:algorithm|array|atomic|cassert|c?math|chrono|cstd\w+|cstring|deque|functional"
    rb"|initializer_list|iosfwd|iostream|istream|iterator|limits|list|map|memory|mutex|new|numeric|optional"
    rb"|ostream|queue|set|sstream|stdexcept|string|string_view|tuple|type_traits|unordered_\w+|utility|variant"
    rb"|vector)>",
    re.M,
)
_NOT_CODE = re.compile(rb"/\*.*?(?:\*/|\Z)|//[^\n]*", re.S)
_EXTERN_C = re.compile(rb"extern\s+\"C(?:\+\+)?\"")
_MATLAB = re.compile(rb"^[ \t]*(?:%|function\b|classdef\b|end\s*;?\s*$)", re.M)
_PROLOG = re.compile(rb"^[ \t]*:-|^[a-z]\w*\(.*\)\s*(?::-|\.\s*$)", re.M)
_PERL = re.compile(
    rb"^[ \t]*(?:use\s+(?:strict|warnings|v?5|[A-Z]\w*)|package\s+\w|sub\s+\w|my\s*[$@%(]|#!.*perl)", re.M
)
_COQ = re.compile(
    rb"^[ \t]*(?:Require|Theorem|Lemma|Definition|Proof|Inductive|Fixpoint|Section|From)\b|\(\*", re.M
)
_VERILOG = re.compile(
    rb"^[ \t]*(?:module|endmodule|`timescale|`define|`include|always|assign|wire|reg|input)\b", re.M
)
_V = re.compile(rb"^(?:module[ \t]+\w+[ \t]*$|import[ \t]+\w|(?:pub[ \t]+)?fn[ \t])", re.M)
_GLSL = re.compile(
    rb"^[ \t]*(?:#version\b|precision\s|uniform\s|varying\s|attribute\s|void\s+main\s*\()", re.M
)
_FORTH = re.compile(rb"^(?:: |\\ )", re.M)
_TYPESCRIPT_XML = re.compile(rb"\A\s*(?:<\?xml|<!DOCTYPE TS|<TS\b)")
# No text may match this in two ways: backtracking in a file of line ends would take for ever.
_ROFF = re.compile(rb"\A(?:[.'\\]\\?\"[^\n]*\n|\.?[ \t]*\n)*[.'](?:TH|Dd|SH|so|de|ds|if|ie|nr|mso)\b")
_PHP = re.compile(rb"<\?(?:php|=)")
_PASCAL = re.compile(
    rb"^[ \t]*(?:program|unit|uses|procedure|interface|implementation|begin|var|type)\b", re.M | re.I
)
_PUPPET = re.compile(rb"^[ \t]*(?:class|define|node|include)\s+[\w:']+|=>", re.M)
_FORTRAN = re.compile(
    rb"^(?:[cC*!]|[ \t]+(?:subroutine|program|integer|real|double|implicit|end|call|do)\b)", re.M | re.I
)
_PROSE_OR_BASH = re.compile(
    rb"^[ \t]*(?:if|for|while|case)\b.*(?:;\s*(?:then|do)|in)\s*$|^[ \t]*(?:fi|done|esac)\b", re.M
)
_RUST = re.compile(rb"^[ \t]*(?:pub\s|use\s|fn\s|mod\s|impl\b|struct\s|#!?\[|extern crate)", re.M)


def _header(data: bytes) -> str:
    """Return C, C++ or Objective-C, which share .h."""
    code = _NOT_CODE.sub(b" ", data)
    if _OBJECTIVE_C.search(code):
        return "Objective-C"
    # C headers use `extern "C"` for the sake of C++, so it is no sign of C++.
    return "C++" if _CPP.search(_EXTERN_C.sub(b"", code)) else "C"


def _dot_m(data: bytes) -> str:
    if _OBJECTIVE_C.search(data) or b"#include" in data:
        return "Objective-C"
    if data.count(b"(*") and data.count(b"*)") and not _MATLAB.search(data):
        return "Mathematica"
    return "MATLAB"


def _dot_pl(data: bytes) -> str:
    return "Prolog" if _PROLOG.search(data) and not _PERL.search(data) else "Perl"


def _dot_v(data: bytes) -> str:
    if _COQ.search(data) and not _VERILOG.search(data):
        return "Coq"
    return "V" if _V.search(data) and b"endmodule" not in data else "Verilog"


def _dot_fs(data: bytes) -> str:
    if _GLSL.search(data):
        return "GLSL"
    return "Forth" if _FORTH.search(data) else "F#"


def _dot_inc(data: bytes) -> str | None:
    if _PHP.search(data):
        return "PHP"
    if re.search(rb"^[ \t]*(?:#\s*(?:include|define|ifn?def|if|pragma)\b|/\*|//)", data, re.M):
        return _header(data)
    if re.search(rb"^[ \t]*(?:SUMMARY|SRC_URI|DEPENDS|inherit)\b", data, re.M):
        return "BitBake"
    if re.search(rb"^[\w.]+\s*[:+?]?=", data, re.M):
        return "Makefile"
    return None


def _either(pattern: re.Pattern[bytes], first: str, other: str | None) -> _Choice:
    return lambda data: first if pattern.search(data) else other


def _dot_number(data: bytes) -> str | None:
    return "Roff Manpage" if _ROFF.match(data) else None


def _dot_in(data: bytes) -> str | None:
    return by_content(data)


BY_CHOICE: dict[str, _Choice] = {
    "h": _header,
    "m": _dot_m,
    "pl": _dot_pl,
    "v": _dot_v,
    "fs": _dot_fs,
    "inc": _dot_inc,
    "ts": _either(_TYPESCRIPT_XML, "XML", "TypeScript"),
    "pro": _either(_PROLOG, "Prolog", "QMake"),
    "t": _either(_PERL, "Perl", None),
    "r": _either(re.compile(rb"\A\s*(?:REBOL|Red)\b"), "Rebol", "R"),
    "rs": _either(re.compile(rb"^[ \t]*#pragma\s+(?:rs|version)", re.M), "RenderScript", "Rust"),
    "pp": _either(_PASCAL, "Pascal", "Puppet"),
    "cl": _either(re.compile(rb"^[ \t]*\((?:defun|defpackage|in-package)\b", re.M), "Common Lisp", "OpenCL"),
    "for": _either(_FORTRAN, "Fortran", None),
    "frm": _either(re.compile(rb"\AVERSION\b"), "VBA", None),
    "bas": _either(re.compile(rb"^Attribute VB_", re.M), "VBA", "BASIC"),
    "cls": _either(
        re.compile(rb"^Attribute VB_|\AVERSION", re.M),
        "VBA",
        "TeX",
    ),
    "td": _either(re.compile(rb"^[ \t]*(?:def|class|include|let|multiclass)\b", re.M), "TableGen", None),
    "conf": _either(re.compile(rb"^[ \t]*[\[#;]|^[ \t]*[\w.-]+\s*=", re.M), "INI", None),
    "tpp": lambda data: "C++",
    "in": _dot_in,
    "tag": _either(re.compile(rb"<%"), "Java Server Pages", None),
    "rules": _either(re.compile(rb"\A\s*<"), "XML", None),
    "org": _either(re.compile(rb"^(?:\*+ |#\+)", re.M), "Org", None),
    "st": _either(re.compile(rb"^\S.*!\s*$|\bsubclass:", re.M), "Smalltalk", None),
    "do": _either(
        re.compile(rb"^[ \t]*(?:use|gen|replace|reg|foreach|local|clear|\*)\b", re.M), "Stata", None
    ),
    **{str(section): _dot_number for section in range(1, 10)},
    **{f"{section}{suffix}": _dot_number for section in (1, 3) for suffix in ("p", "pm", "ssl", "perl")},
}

_MARKUP: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (re.compile(rb"\A\s*<\?xml\b(?s:.{0,400}?)<svg\b"), "SVG"),
    (re.compile(rb"\A\s*<svg\b"), "SVG"),
    (re.compile(rb"\A\s*(?:<\?xml\b(?s:.{0,400}?))?<(?:!doctype html|html)\b", re.I), "HTML"),
    (re.compile(rb"\A\s*<\?xml\b"), "XML"),
    (re.compile(rb"\A\s*<\?php\b"), "PHP"),
    (re.compile(rb"\A%!PS"), "PostScript"),
    (re.compile(rb"\A(?:diff --git |Index: |--- \S+.*\n\+\+\+ )"), "Diff"),
    (re.compile(rb"\A\s*\\documentclass\b"), "TeX"),
)


def by_shebang(data: bytes) -> str | None:
    """Return the language of the interpreter in the first line; None if there is none or it is unknown."""
    if not data.startswith(b"#!"):
        return None
    found = _SHEBANG.match(data.split(b"\n", 1)[0])
    if found is None:
        return None
    words = [found[1].rpartition(b"/")[2], *found[2].split()]
    if words[0] == b"env":
        # "env -S name", "env VAR=value name"
        words = [
            word.rpartition(b"/")[2] for word in words[1:] if not word.startswith(b"-") and b"=" not in word
        ]
    if not words:
        return None
    name = words[0].decode("ascii", "replace").lower()
    language = BY_INTERPRETER.get(name) or BY_INTERPRETER.get(_VERSION.sub("", name))
    if language == "Shell" and re.search(rb"\nexec (?:tclsh|wish)", data[:500]):
        return "Tcl"
    return language


def by_content(data: bytes) -> str | None:
    """Return the language by shebang, an editor's mode line, or the first words of markup; None if none decides."""
    language = by_shebang(data)
    if language is not None:
        return language
    found = _MODELINE.search(b"\n".join(data[:600].split(b"\n", 5)[:5]))
    if found is not None:
        mode = (found[1] or found[2]).decode("ascii", "replace").lower()
        if mode in _MODES:
            return _MODES[mode]
    if _ROFF.match(data[:1000]):
        return "Roff"
    return next((name for pattern, name in _MARKUP if pattern.search(data[:1000])), None)
