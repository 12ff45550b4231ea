"""Names that datasets use for languages, mapped to ours (GitHub's)."""

from functools import cache

from data_prep.text.language_names import BY_EXTENSION, BY_FILE_NAME, BY_INTERPRETER

# Spellings that are neither a language's name nor one of its extensions or interpreters.
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
# Languages that no extension identifies.
_IDENTIFIED_BY_CONTENT = (
    "BASIC",
    "Forth",
    "MATLAB",
    "Objective-C",
    "QMake",
    "Rebol",
    "RenderScript",
    "V",
    "VBA",
)


@cache
def canonical_language(name: str) -> str | None:
    """Return our name of a language that a source names "python", "c-sharp", "jupyter-notebook"; None if unknown."""
    name = name.strip().casefold()
    spaced = name.replace("-", " ").replace("_", " ")
    names = _names()
    for spelling in (name, spaced):
        if spelling in names:
            return names[spelling]
        if spelling in _ALIASES:
            return _ALIASES[spelling]
    return BY_EXTENSION.get(name) or BY_INTERPRETER.get(name)


def own_languages() -> frozenset[str]:
    """Return every name that our own tables and content rules use."""
    return frozenset(_names().values())


@cache
def _names() -> dict[str, str]:
    languages = {
        *_IDENTIFIED_BY_CONTENT,
        *BY_EXTENSION.values(),
        *BY_FILE_NAME.values(),
        *BY_INTERPRETER.values(),
    }
    return {
        spelling: name
        for name in sorted(languages)
        for spelling in (name.casefold(), name.casefold().replace("-", " "))
    }
