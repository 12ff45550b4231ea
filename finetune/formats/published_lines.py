"""The forms in which CodeXGLUE has published items of line completion: py150 for Python, javaCorpus for Java."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cluster.errors import UserError
from finetune.formats.java_corpus import ENDS, java_corpus_cuts, java_corpus_tokens
from finetune.formats.literals import Literals
from finetune.formats.py150 import LINE_END, py150_cuts, py150_tokens
from finetune.languages import grammar_name
from finetune.modalities.writing import Pair


@dataclass(frozen=True)
class PublishedLines:
    """How a source becomes tokens, [] where it cannot, and which (first, end) of these are to be completed."""

    language: str
    tokens: Callable[[str, Literals], list[str]]
    cuts: Callable[[Sequence[str]], list[tuple[int, int]]]


_FORMS = {
    "python": PublishedLines("Python", py150_tokens, py150_cuts),
    "java": PublishedLines("Java", java_corpus_tokens, java_corpus_cuts),
}


def published_lines(language: str) -> PublishedLines:
    """UserError for a language of which no items were published."""
    form = _FORMS.get(grammar_name(language))
    if form is None:
        raise UserError(
            f"task.literals: CodeXGLUE's line completion is in Python and Java, so there is no form for items in "
            f"{language}: set task.language, or leave task.literals out and name a training file (task.train)"
        )
    return form


def language_of_items(items: Sequence[Pair]) -> str | None:
    """Of the form that items have: Python's has `<EOL>`, every completion of Java's ends at `;` or `}`."""
    if any(LINE_END in pair.source.split() for pair in items):
        return "Python"
    if items and all(pair.references[0].endswith(tuple(ENDS)) for pair in items):
        return "Java"
    return None
