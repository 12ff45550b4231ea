"""Look-up of a repository's files by complete paths and by the ends of paths."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

MAX_DEPTH = 32
"""Folders further above a file are not searched, which bounds the cost of very deep paths."""
_MAX_SUFFIX_PARTS = 10


def folder_of(path: str) -> str:
    """Return the folder of `path` with a slash at its end; empty for the repository itself."""
    return path[: path.rfind("/") + 1]


def ancestors(folder: str) -> Iterator[str]:
    """Yield `folder` ("a/b/"), the folders above it, and finally ""."""
    for _ in range(MAX_DEPTH):
        if not folder:
            break
        yield folder
        folder = folder[: folder.rfind("/", 0, -1) + 1]
    yield ""


def resolve_path(folder: str, relative: str) -> str | None:
    """Return the path `relative` to `folder`, without "." and ".."; None if it leaves the repository."""
    parts = folder.split("/")[:-1]
    for part in relative.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


class SuffixIndex:
    """Finds names ("a/b/c") by any of their ends ("c", "b/c", "a/b/c")."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._names = sorted(numbers)
        self._numbers = numbers
        self._places: dict[str, list[int]] = {}
        for place, name in enumerate(self._names):
            for suffix in _suffixes(name):
                self._places.setdefault(suffix, []).append(place)

    def nearest(self, suffix: str, origin: str) -> str | None:
        """Return the name with this end that shares most leading folders with `origin`, the first of several."""
        places = self._places.get(suffix)
        if places is None:
            return None
        # Among sorted names, one with the longest common prefix is next to where `origin` would be.
        middle = bisect_left(places, bisect_left(self._names, origin)) if len(places) > 1 else 0
        candidates = [self._names[place] for place in places[max(0, middle - 1) : middle + 1]]
        return max(candidates, key=lambda name: _num_common_folders(name, origin))

    def number(self, name: str) -> int:
        """Return the number of a name."""
        return self._numbers[name]


def _suffixes(name: str) -> Iterable[str]:
    start = len(name)
    for _ in range(_MAX_SUFFIX_PARTS):
        start = name.rfind("/", 0, start)
        yield name[start + 1 :]
        if start < 0:
            break


def _num_common_folders(one: str, other: str) -> int:
    count = 0
    for mine, theirs in zip(one.split("/")[:-1], other.split("/")[:-1], strict=False):
        if mine != theirs:
            break
        count += 1
    return count
