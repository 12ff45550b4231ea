"""Languages by the extensions that Pygments knows and our own tables do not: some 300 rare ones."""

from functools import cache

from pygments.lexers import get_all_lexers

from data_prep.text.told_languages import known_language

# What Pygments colours, but nobody would train a model of code on: logs, transcripts, messages, records of games.
_NO_CODE = frozenset(
    {
        "ASCII armored",
        "Darcs Patch",
        "E-mail",
        "GAP session",
        "IRC logs",
        "Kernel log",
        "LDIF",
        "PostgreSQL EXPLAIN dialect",
        "PyPy Log",
        "Python 2.x Traceback",
        "Python Traceback",
        "RConsole",
        "SmartGameFormat",
        "TAP",
        "Todotxt",
        "WDiff",
        "objdump",
        "tiddler",
    }
)


def rare_language(extension: str) -> str | None:
    """The one language whose files end in `extension` (lower case, no dot), as Pygments has it and named as GitHub
    names it where we know that name; None where it knows none, or several."""
    return _by_extension().get(extension)


def rare_languages() -> frozenset[str]:
    """Every name that `rare_language` gives."""
    return frozenset(_by_extension().values())


@cache
def _by_extension() -> dict[str, str]:
    claims: dict[str, set[str]] = {}
    # Of Pygments' own lexers: what else is installed must not decide what a corpus holds.
    for name, _, patterns, _ in get_all_lexers(plugins=False):
        for pattern in patterns:
            extension = pattern.removeprefix("*.").lower()
            if pattern.startswith("*.") and not set("*?[") & set(extension):
                claims.setdefault(extension, set()).add(name)
    return {
        extension: known_language(name) or name
        for extension, (name, *others) in ((e, sorted(names)) for e, names in sorted(claims.items()))
        if not others and name not in _NO_CODE
    }
