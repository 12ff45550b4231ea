"""Exact duplicates."""

from collections.abc import Iterable


def first_of_each(digests: Iterable[str | None]) -> list[int | None]:
    """For each digest the position of an earlier equal one, or None where it is the first.

    Given in (repository, path) order, the first file in that order stays. None digests are no duplicates.
    """
    first: dict[str, int] = {}
    duplicate_of: list[int | None] = []
    for position, digest in enumerate(digests):
        earlier = position if digest is None else first.setdefault(digest, position)
        duplicate_of.append(None if earlier == position else earlier)
    return duplicate_of
