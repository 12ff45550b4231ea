"""The names that datasets give languages, as ours."""

from functools import cache

from data_prep.text.language_names import BY_EXTENSION, BY_FILE_NAME, BY_INTERPRETER

# What is neither a language's name, nor an extension or interpreter of it.
_ALIASES = {
    "assembler": "Assembly",
    "bash script": "Shell",
    "c sharp": "C#",
    "c++ header": "C++",
    "cplusplus": "C++",
    "csharp": "C#",
    "docker": "Dockerfile",
    "f sharp": "F#",
    "fsharp": "F#",
    "golang": "Go",
    "groff": "Roff Manpage",
    "objectivec": "Objective-C",
    "plain text": "Text",
    "vb.net": "Visual Basic .NET",
    "visual basic": "Visual Basic .NET",
}
# Languages that no extension is enough to tell.
_TOLD_BY_CONTENT = ("BASIC", "Forth", "MATLAB", "Objective-C", "QMake", "Rebol", "RenderScript", "V", "VBA")


@cache
def known_language(told: str) -> str | None:
    """Our name of a language that a source names ("python", "c-sharp", "jupyter-notebook"); None if we know none."""
    name = told.strip().casefold()
    spaced = name.replace("-", " ").replace("_", " ")
    names = _names()
    for spelling in (name, spaced):
        if spelling in names:
            return names[spelling]
        if spelling in _ALIASES:
            return _ALIASES[spelling]
    return BY_EXTENSION.get(name) or BY_INTERPRETER.get(name)


def own_languages() -> frozenset[str]:
    """Every name that our own tables and rules of content give."""
    return frozenset(_names().values())


@cache
def _names() -> dict[str, str]:
    languages = {*_TOLD_BY_CONTENT, *BY_EXTENSION.values(), *BY_FILE_NAME.values(), *BY_INTERPRETER.values()}
    return {spelling: name for name in sorted(languages) for spelling in _spellings(name)}


def _spellings(name: str) -> tuple[str, str]:
    folded = name.casefold()
    return folded, folded.replace("-", " ")
