"""A buggy version of a function: a pure function of the text and the seed."""

from dataclasses import dataclass

from finetune.bugs.kinds import KINDS
from finetune.syntax import edited, parse
from pretrain.randomness import keyed_generator

_MAX_TRIES = 10


@dataclass(frozen=True)
class Bug:
    """A bug that was made: its kind, and the function with it."""

    kind: str
    code: str


def make_bugs(code: str, language: str, seed: int, most: int) -> list[Bug]:
    """Up to `most` different versions of a function, each with one bug; fewer where it has fewer places.

    The kind is drawn evenly from those that the function still has a place for, so that no kind drowns the others.
    Every version parses and differs from `code` in more than white space. [] where the function does not parse.
    """
    parsed = parse(code, language)
    if parsed is None:
        return []
    generator = keyed_generator(seed, f"bug:{code}")
    sites = {kind: list(finder(parsed, parsed.root)) for kind, finder in KINDS.items()}
    bugs: dict[str, Bug] = {}
    for _ in range(_MAX_TRIES * most):
        kinds = [kind for kind, found in sites.items() if found]
        if not kinds or len(bugs) == most:
            break
        kind = kinds[generator.integers(len(kinds))]
        site = sites[kind].pop(int(generator.integers(len(sites[kind]))))
        buggy = edited(parsed, site)
        if buggy is not None:
            bugs.setdefault(buggy, Bug(kind, buggy))
    return list(bugs.values())
