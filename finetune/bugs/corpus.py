"""Pairs of a function with and without a bug, generated from functions in files or in a corpus."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tree_sitter import Node

from cluster.errors import UserError
from data_prep.finished.prepared import PreparedCorpus
from finetune.bugs.abstraction import abstracted_pair
from finetune.bugs.generator import make_bugs
from finetune.bugs.nodes import FUNCTIONS
from finetune.formats.files import read_lines
from finetune.held_out import held_out_documents
from finetune.languages import grammar_name
from finetune.modalities.writing import Pair
from finetune.syntax import indent_of, parse
from pretrain.randomness import key_seed

_MIN_CHARACTERS, _MAX_CHARACTERS = 30, 4000


@dataclass(frozen=True)
class GeneratedBugs:
    """Pairs (buggy -> right), and the number of pairs of every kind."""

    pairs: list[Pair]
    num_by_kind: dict[str, int]


def functions_of(text: str, language: str) -> list[str]:
    """Return the outermost functions and methods of a file, each dedented; [] if it does not parse."""
    parsed = parse(text, language)
    if parsed is None:
        return []
    found = []
    for node in _outermost(parsed.root):
        indent = indent_of(parsed, node)
        if indent is not None:
            found.append(textwrap.dedent(indent + parsed.text(node)))
    return found


def functions_in_file(path: Path) -> Iterator[str]:
    """Yield the functions of a file with one per line. Raises UserError if the file is missing or empty."""
    yield from read_lines(path)


def functions_of_corpus(corpus: PreparedCorpus, split: str, language: str, seed: int) -> Iterator[str]:
    """Yield the functions of the split's documents in that language; packages alternate."""
    for document in held_out_documents(corpus, split, seed, language):
        yield from functions_of(document.text, grammar_name(language))


def generated_bugs(
    functions: Iterable[str],
    language: str,
    seed: int,
    *,
    most: int,
    each: int = 1,
    idioms: frozenset[str] | None = None,
    without: Iterable[str] = (),
    name: str = "bug",
) -> GeneratedBugs:
    """Generate at most `most` pairs, up to `each` per function; skip repeated functions and those in `without`.

    A pure function of its arguments. With `idioms` both sides are written in the form of CodeXGLUE's refinement set.
    Raises UserError if no function can have a bug.
    """
    pairs: list[Pair] = []
    kinds: list[str] = []
    seen = {" ".join(text.split()) for text in without}
    for number, code in enumerate(functions):
        if len(pairs) >= most:
            break
        if not _MIN_CHARACTERS <= len(code) <= _MAX_CHARACTERS:
            continue
        for kind, buggy, fixed in _versions(code, language, key_seed(seed, name, number), each, idioms):
            if not seen.isdisjoint((" ".join(buggy.split()), " ".join(fixed.split()))):
                continue
            kinds.append(kind)
            pairs.append(Pair(f"{name}-{len(pairs) + 1}-{kind}", buggy, (fixed,), language=language))
        seen.update(
            " ".join(text.split()) for pair in pairs[-each:] for text in (pair.source, *pair.references)
        )
    if not pairs:
        raise UserError(
            f"no bug could be made: no {language} function in the data parses and has a place for one"
        )
    return GeneratedBugs(pairs[:most], dict(Counter(kinds[:most])))


def _versions(
    code: str, language: str, seed: int, each: int, idioms: frozenset[str] | None
) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, buggy, right) for distinct bugs of one function."""
    for bug in make_bugs(code, language, seed, each):
        both = (bug.code, code) if idioms is None else abstracted_pair(bug.code, code, language, idioms)
        if both is not None:
            yield (bug.kind, *both)


def _outermost(root: Node) -> Iterator[Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type in FUNCTIONS:
            yield node
        else:
            stack += reversed(node.children)
