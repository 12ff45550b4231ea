"""Drafts of the next tokens of a text: what followed the same tokens elsewhere in it."""

from collections.abc import Sequence

_LONGEST_RUN_TOKENS = 3


class Drafter:
    """Proposes tokens that continue a text.

    A draft is the token that followed the newest run of up to three equal tokens (prompt lookup). It decides how fast a
    text is written, never what is written.
    """

    def __init__(self, prefix: Sequence[int], suffix: Sequence[int]) -> None:
        self._following: dict[tuple[int, ...], int] = {}
        for part in (suffix, prefix):
            for end in range(1, len(part)):
                self._learn(part[max(0, end - _LONGEST_RUN_TOKENS) : end], part[end])
        self._written = list(prefix[-_LONGEST_RUN_TOKENS:])

    def copy(self) -> "Drafter":
        """Return a drafter that knows the same and learns by itself."""
        other = Drafter((), ())
        other._following, other._written = dict(self._following), list(self._written)
        return other

    def add(self, token: int) -> None:
        """Notice that a token was written."""
        self._learn(self._written, token)
        self._written = [*self._written, token][-_LONGEST_RUN_TOKENS:]

    def drafts(self, most: int) -> list[int]:
        """Return up to `most` tokens to propose after the written ones."""
        text, found = list(self._written), list[int]()
        while len(found) < most:
            runs = (tuple(text[-length:]) for length in range(min(_LONGEST_RUN_TOKENS, len(text)), 0, -1))
            known = next((run for run in runs if run in self._following), None)
            if known is None:
                break
            found.append(self._following[known])
            text.append(found[-1])
        return found

    def _learn(self, before: Sequence[int], token: int) -> None:
        for run in range(1, len(before) + 1):
            self._following[tuple(before[-run:])] = token
