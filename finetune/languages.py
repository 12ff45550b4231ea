"""Mapping from the language names that tasks use to the names of tree-sitter's grammars."""

from data_prep.filters.syntax import GRAMMARS

_GRAMMAR_OF = {name.lower(): grammar for name, grammar in GRAMMARS.items()} | {
    "c#": "csharp",
    "cs": "csharp",
    "c_sharp": "csharp",
    "c++": "cpp",
    "golang": "go",
    "js": "javascript",
    "py": "python",
    "rb": "ruby",
    "ts": "typescript",
}


def grammar_name(language: str) -> str:
    """Return the grammar's name: "csharp" for "cs" and "C#"; an unknown name is returned in lower case."""
    lower = language.strip().lower()
    return _GRAMMAR_OF.get(lower, lower)
