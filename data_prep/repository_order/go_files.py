"""Resolution of Go imports inside a repository."""

from collections.abc import Iterable, Iterator, Mapping

from data_prep.repository_order.packages import Packages
from data_prep.repository_order.paths import ancestors, folder_of

_STANDARD = frozenset(
    "archive bufio builtin bytes cmp compress container context crypto database debug embed encoding errors expvar "
    "flag fmt go hash html image index io iter log maps math mime net os path plugin reflect regexp runtime slices "
    "sort strconv strings structs sync syscall testing text time unicode unique unsafe weak C".split()
)
_MAX_PARTS = 24


class GoFiles:
    """Resolves Go imports to a repository's packages: its folders with Go files that are not tests."""

    def __init__(self, number_of: Mapping[str, int], first_node: int, targets: Iterable[str]) -> None:
        """`targets` are all imports of the repository's Go files, from which the modules' names are inferred."""
        files_of: dict[str, list[int]] = {}
        for path, number in number_of.items():
            if path.endswith(".go") and not path.endswith("_test.go"):
                files_of.setdefault(folder_of(path)[:-1], []).append(number)
        self.packages = Packages(first_node, files_of)
        self._modules = self._module_names(targets)

    def resolve(self, importer: str, target: str) -> Iterator[int]:
        """Yield the package that `target` means, if it is in the repository and not the importer's own.

        It is below a `vendor` or `src` above the importer, or follows a module's name in the import path. go.mod is
        not read: the part before a folder with Go files in an import path is taken for a module's name if that folder
        has two parts or more, or if the imports of the repository name two such folders.
        """
        folder = self._folder(folder_of(importer), target)
        if folder is not None and f"{folder}/".lstrip("/") != folder_of(importer):
            yield self.packages.node(folder)

    def _folder(self, origin: str, target: str) -> str | None:
        if target.partition("/")[0] in _STANDARD:
            return None
        for above in ancestors(origin):
            for inside in ("vendor/", "src/"):
                if above + inside + target in self.packages:
                    return above + inside + target
        for module, folder in self._splits(target):
            if module in self._modules:
                return folder
        return "" if target in self._modules and "" in self.packages else None

    def _splits(self, target: str) -> Iterator[tuple[str, str]]:
        """Yield (module, folder) for every end of `target` that is a package, the longest end first."""
        parts = target.split("/")[:_MAX_PARTS]
        for i in range(1, len(parts)):
            folder = "/".join(parts[i:])
            if folder in self.packages:
                yield "/".join(parts[:i]), folder

    def _module_names(self, targets: Iterable[str]) -> set[str]:
        folders_of: dict[str, set[str]] = {}
        for target in set(targets):
            if target.partition("/")[0] not in _STANDARD:
                for module, folder in self._splits(target):
                    folders_of.setdefault(module, set()).add(folder)
        return {
            module
            for module, folders in folders_of.items()
            if len(folders) > 1 or any("/" in folder for folder in folders)
        }
