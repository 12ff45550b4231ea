"""Folders that are imported as one: a node of the graph each, which needs all its files."""

from collections.abc import Iterable


class Packages:
    """Packages by folder. Their nodes are numbered from `first_node` on; so edges stay as many as imports."""

    def __init__(self, first_node: int, files_of: dict[str, list[int]]) -> None:
        self.first_node = first_node
        self._files_of = files_of
        self._node_of = {folder: first_node + i for i, folder in enumerate(files_of)}

    def __contains__(self, folder: str) -> bool:
        return folder in self._node_of

    def node(self, folder: str) -> int:
        """The node of a package."""
        return self._node_of[folder]

    def nodes(self) -> dict[str, int]:
        """All nodes by folder."""
        return self._node_of

    def needs(self) -> Iterable[list[int]]:
        """The files of every package, by its node's number."""
        return self._files_of.values()
