"""A buggy version of a function: a pure function of the text and the seed."""

from dataclasses import dataclass

from finetune.bugs.kinds import KINDS
from finetune.syntax import edited, parse
from pretrain.randomness import keyed_generator

_MAX_TRIES = 10


@dataclass(frozen=True)
class Bug:
    """What was done, and the function with it."""

    kind: str
    code: str


def make_bug(code: str, language: str, seed: int) -> Bug | None:
    """One bug of a kind drawn evenly from those that the function has a place for, so that no kind drowns the others.

    What is given back parses and differs from `code` in more than white space. None where the function does not parse
    or offers no place. Two draws of one function may give the same bug.
    """
    parsed = parse(code, language)
    if parsed is None:
        return None
    generator = keyed_generator(seed, f"bug:{code}")
    sites = {kind: list(finder(parsed, parsed.root)) for kind, finder in KINDS.items()}
    for _ in range(_MAX_TRIES):
        kinds = [kind for kind, found in sites.items() if found]
        if not kinds:
            return None
        kind = kinds[generator.integers(len(kinds))]
        site = sites[kind].pop(int(generator.integers(len(sites[kind]))))
        buggy = edited(parsed, site)
        if buggy is not None:
            return Bug(kind, buggy)
    return None
