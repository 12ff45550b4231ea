"""Names of languages as tasks write them, to those of tree-sitter's grammars."""

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
    """ "cs" and "C#" become "csharp"; a name that is not known is given back in lower case."""
    lower = language.strip().lower()
    return _GRAMMAR_OF.get(lower, lower)
