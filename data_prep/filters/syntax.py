"""Syntax trees of files, by tree-sitter; the grammars are in the package, nothing is downloaded."""

from functools import cache
from typing import Any

import numpy as np
from tree_sitter import Language, Node, Parser, Query, QueryCursor

from data_prep.text.file import TextFile

_MAX_OPEN_BRACKETS = 1000
_BRACKETS = np.zeros(256, np.int8)
_BRACKETS[np.frombuffer(b"([{", np.uint8)] = 1
_BRACKETS[np.frombuffer(b")]}", np.uint8)] = -1
# Our names to the grammars'. Markdown, HTML and other languages in which any text is valid have no entry.
GRAMMARS = {
    "Ada": "ada",
    "C": "c",
    "C#": "csharp",
    "C++": "cpp",
    "Clojure": "clojure",
    "CMake": "cmake",
    "CSS": "css",
    "Cuda": "cuda",
    "Dart": "dart",
    "Elixir": "elixir",
    "Elm": "elm",
    "Erlang": "erlang",
    "F#": "fsharp",
    "Fortran": "fortran",
    "GLSL": "glsl",
    "Go": "go",
    "GraphQL": "graphql",
    "Groovy": "groovy",
    "Haskell": "haskell",
    "HCL": "hcl",
    "Java": "java",
    "JavaScript": "javascript",
    "JSON": "json",
    "Julia": "julia",
    "Kotlin": "kotlin",
    "Lua": "lua",
    "MATLAB": "matlab",
    "Nim": "nim",
    "Nix": "nix",
    "Objective-C": "objc",
    "OCaml": "ocaml",
    "Pascal": "pascal",
    "Perl": "perl",
    "PHP": "php",
    "PowerShell": "powershell",
    "Protocol Buffer": "proto",
    "Python": "python",
    "R": "r",
    "Racket": "racket",
    "Ruby": "ruby",
    "Rust": "rust",
    "Scala": "scala",
    "SCSS": "scss",
    "Shell": "bash",
    "Solidity": "solidity",
    "SQL": "sql",
    "Swift": "swift",
    "SystemVerilog": "verilog",
    "Tcl": "tcl",
    "Thrift": "thrift",
    "TOML": "toml",
    "TSX": "tsx",
    "TypeScript": "typescript",
    "Verilog": "verilog",
    "VHDL": "vhdl",
    "YAML": "yaml",
    "Zig": "zig",
}


def syntax_root(file: TextFile) -> Node | None:
    """Return the root of the file's syntax tree; None if there is no grammar for its language.

    Also None for files with more than 1,000 brackets open at once, for which the parser's error recovery takes minutes.
    """
    parser = _parser(file.language)
    if parser is None:
        return None
    # Brackets in strings and comments count as well.
    octets = np.frombuffer(file.data, np.uint8)
    if np.cumsum(_BRACKETS[octets], dtype=np.int64).max(initial=0) > _MAX_OPEN_BRACKETS:
        return None
    return parser.parse(file.data).root_node


def num_captured_bytes(root: Node, query: Query) -> int:
    """Return the bytes covered by the nodes that `query` captures, counting nested ones once."""
    spans = sorted(
        (node.start_byte, node.end_byte)
        for nodes in QueryCursor(query).captures(root).values()
        for node in nodes
    )
    covered = reached = 0
    for start, end in spans:
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    return covered


def grammar(language: str) -> Language:
    """Return the grammar of a language in `GRAMMARS`."""
    # Imported here, because a run without these rules does not need the package's 170 grammars.
    from tree_sitter_language_pack import get_language

    name: Any = GRAMMARS[language]
    return get_language(name)


@cache
def _parser(language: str | None) -> Parser | None:
    if language not in GRAMMARS:
        return None
    return Parser(grammar(language))
