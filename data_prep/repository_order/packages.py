"""Folders that are imported as packages: each is a node of the graph that needs all its files."""

from collections.abc import Iterable


class Packages:
    """Packages by folder, with nodes numbered from `first_node`; nodes keep the number of edges that of imports."""

    def __init__(self, first_node: int, files_of: dict[str, list[int]]) -> None:
        self.first_node = first_node
        self._files_of = files_of
        self._node_of = {folder: first_node + i for i, folder in enumerate(files_of)}

    def __contains__(self, folder: str) -> bool:
        return folder in self._node_of

    def node(self, folder: str) -> int:
        """Return the node of a package."""
        return self._node_of[folder]

    def nodes(self) -> dict[str, int]:
        """Return all nodes by folder."""
        return self._node_of

    def needs(self) -> Iterable[list[int]]:
        """Return the files of every package, in the order of the nodes."""
        return self._files_of.values()
