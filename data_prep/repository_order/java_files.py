"""Resolution of imports of Java (Kotlin, Groovy) inside a repository."""

from collections.abc import Iterator, Mapping

from data_prep.repository_order.packages import Packages
from data_prep.repository_order.paths import SuffixIndex, folder_of

_ENDINGS = (".java", ".kt", ".groovy")


class JavaFiles:
    """Resolves qualified names to a repository's classes, wherever its source roots are."""

    def __init__(self, number_of: Mapping[str, int], first_node: int) -> None:
        classes: dict[str, int] = {}
        files_of: dict[str, list[int]] = {}
        for path, number in number_of.items():
            if path.endswith(_ENDINGS):
                classes.setdefault(path.rpartition(".")[0], number)
                files_of.setdefault(folder_of(path)[:-1], []).append(number)
        self.packages = Packages(first_node, files_of)
        self._classes = SuffixIndex(classes)
        self._folders = SuffixIndex(self.packages.nodes())

    def resolve(self, importer: str, target: str) -> Iterator[int]:
        """Yield the file of the class `target`, or the package of "a.b.*", if it is in the repository.

        For a member or an inner class, it is the file of the class that has it. Of several, the nearest to the file
        `importer` is used.
        """
        name = target.replace(".", "/")
        if name.endswith("/*"):
            folder = self._folders.nearest(name[:-2], importer)
            if folder is not None and f"{folder}/" != folder_of(importer):
                yield self._folders.number(folder)
                return
            name = name[:-2]  # all static members of a class
        while "/" in name:
            found = self._classes.nearest(name, importer)
            if found is not None:
                yield self._classes.number(found)
                return
            name = name.rpartition("/")[0]
