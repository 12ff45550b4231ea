"""Buggy versions of a function, as a pure function of its text and the seed."""

from dataclasses import dataclass

from finetune.bugs.kinds import KINDS
from finetune.syntax import edited, parse
from pretrain.randomness import keyed_generator

_MAX_TRIES = 10


@dataclass(frozen=True)
class Bug:
    """A generated bug: its kind, and the function with the bug."""

    kind: str
    code: str


def make_bugs(code: str, language: str, seed: int, most: int) -> list[Bug]:
    """Return up to `most` different versions of a function, each with one bug; fewer if it has fewer places for bugs.

    The kind is sampled uniformly from those that the function still has a place for, so that no kind dominates.
    Every version parses and differs from `code` in more than white space. [] if the function does not parse.
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
