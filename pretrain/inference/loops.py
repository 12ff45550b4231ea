"""Texts that have run into a loop, from which a small model does not find out by itself."""

from collections.abc import Iterator, Sequence

_LONGEST_RUN_TOKENS = 64
_SHORTEST_LOOP_TOKENS = 16
"""Shorter repetitions are ordinary code: brackets that close, rows of zeros."""


def continuing_a_loop(text: Sequence[int], max_repeats: int) -> Iterator[int]:
    """Every token that would go on with a loop: a run of at most 64 tokens with which the text ends, again and again
    for `max_repeats` (from 2 on) runs and at least 16 tokens."""
    for run in range(1, min(_LONGEST_RUN_TOKENS, len(text) // max_repeats) + 1):
        loop = max(run * max_repeats, _SHORTEST_LOOP_TOKENS)
        if len(text) < loop or text[-1] != text[-1 - run]:  # the latter for speed: few texts come past it
            continue
        if text[-loop:-run] == text[run - loop :]:
            yield text[-run]
