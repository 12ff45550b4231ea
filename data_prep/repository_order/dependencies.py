"""Dependencies between the files of a repository: its imports, resolved by the rules of each family of languages."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from data_prep.repository_order.imports import Family, family_of
from data_prep.repository_order.paths import SuffixIndex, ancestors, folder_of, resolve_path
from data_prep.repository_order.python_files import PythonFiles


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


_INCLUDE_FOLDERS = ("", "include/", "src/")


class CFiles:
    """Resolves includes to a repository's files."""

    def __init__(self, number_of: Mapping[str, int]) -> None:
        self._number_of = number_of
        self._names = {path.rpartition("/")[2] for path in number_of}
        self._anywhere = SuffixIndex(number_of)
        self._found: dict[tuple[str, str], int | None] = {}

    def resolve(self, importer: str, target: str) -> Iterator[int]:
        """Yield the file that `target` means in the file `importer`, if it is in the repository.

        It is looked for beside the importer (unless it is in angle brackets), in the folders above, their include and
        src; then anywhere in the repository, the nearest. A bare name in angle brackets that is not found above the
        importer is a system header.
        """
        bare = target.strip("<>")
        if bare.rpartition("/")[2] not in self._names:
            return
        folder = folder_of(importer)
        if (folder, target) not in self._found:
            self._found[folder, target] = self._find(folder, importer, target, bare)
        found = self._found[folder, target]
        if found is not None:
            yield found

    def _find(self, folder: str, importer: str, target: str, bare: str) -> int | None:
        is_system = target.startswith("<")
        if not is_system:
            beside = resolve_path(folder, bare)
            if beside is not None and beside in self._number_of:
                return self._number_of[beside]
        for above in ancestors(folder):
            for inside in _INCLUDE_FOLDERS:
                if above + inside + bare in self._number_of:
                    return self._number_of[above + inside + bare]
        if is_system and "/" not in bare:
            return None
        end = bare.rpartition("../")[2].removeprefix("./")
        found = self._anywhere.nearest(end, importer)
        return None if found is None else self._number_of[found]


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


_JAVA_ENDINGS = (".java", ".kt", ".groovy")


class JavaFiles:
    """Resolves qualified names to a repository's classes, wherever its source roots are."""

    def __init__(self, number_of: Mapping[str, int], first_node: int) -> None:
        classes: dict[str, int] = {}
        files_of: dict[str, list[int]] = {}
        for path, number in number_of.items():
            if path.endswith(_JAVA_ENDINGS):
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


# The first that exists is used, as by bundlers; declarations are used if the source does not exist.
_SCRIPT_ENDINGS = (
    ".ts",
    ".tsx",
    ".mts",
    ".cts",
    ".js",
    ".jsx",
    ".mjs",
    ".cjs",
    ".vue",
    ".svelte",
    ".d.ts",
    ".json",
)
# An import may name the compiled file instead of its source.
_COMPILED_ENDINGS = (".js", ".jsx", ".mjs", ".cjs")
_ROOT_ALIASES = ("@/", "~/")


class ScriptFiles:
    """Resolves module specifiers to a repository's files."""

    def __init__(self, number_of: Mapping[str, int]) -> None:
        stems: dict[str, int] = {}
        for index in ("", "/index"):
            for ending in _SCRIPT_ENDINGS:
                suffix = index + ending
                for path, number in number_of.items():
                    if path.endswith(suffix) and len(path) > len(suffix):
                        stems.setdefault(path[: -len(suffix)], number)
        for ending in _SCRIPT_ENDINGS:
            if f"index{ending}" in number_of:
                stems.setdefault("", number_of[f"index{ending}"])
        self._number_of, self._stems = number_of, stems

    def resolve(self, importer: str, target: str) -> Iterator[int]:
        """Yield the file that a relative `target`, or one below "@/" or "~/", means in the file `importer`.

        Extensions and index files are tried. "@/" and "~/" mean the nearest src, or folder, above that has the file.
        Bare specifiers are external packages.
        """
        if target.startswith("."):
            name = resolve_path(folder_of(importer), target)
            found = None if name is None else self._file(name)
        elif target.startswith(_ROOT_ALIASES):
            found = self._below_a_root(importer, target[2:])
        else:
            found = None
        if found is not None:
            yield found

    def _below_a_root(self, importer: str, inner: str) -> int | None:
        for above in ancestors(folder_of(importer)):
            for root in (above + "src/", above):
                if (found := self._file(root + inner)) is not None:
                    return found
        return None

    def _file(self, name: str) -> int | None:
        found = self._number_of.get(name)
        if found is None:
            found = self._stems.get(name)
        if found is None and name.endswith(_COMPILED_ENDINGS):
            return self._stems.get(name[: name.rfind(".")])
        return found


class FamilyFiles(Protocol):
    """Resolves the imports of one family of languages to a repository's files."""

    def resolve(self, importer: str, target: str) -> Iterator[int]:
        """Yield the nodes that `target` means in the file `importer`; none if it is not in the repository."""
        ...


def needs_of_files(
    paths: Sequence[str], languages: Sequence[str], imports: Sequence[tuple[str, ...]]
) -> list[list[int]]:
    """Return the nodes that each node needs, ascending.

    The first nodes are the files; the others are packages, which are imported as units and need their files. Of files
    with the same path, imports refer to the first.
    """
    number_of: dict[str, int] = {}
    for number, path in enumerate(paths):
        number_of.setdefault(path, number)
    families = [
        family_of(language) if targets else None for language, targets in zip(languages, imports, strict=True)
    ]
    targets_of: dict[Family, set[str]] = {}
    for family, targets in zip(families, imports, strict=True):
        if family is not None:
            targets_of.setdefault(family, set()).update(targets)
    needs: list[list[int]] = [[] for _ in paths]
    resolvers: dict[Family, FamilyFiles] = {}
    if "go" in targets_of:
        go = GoFiles(number_of, len(needs), targets_of["go"])
        needs += go.packages.needs()
        resolvers["go"] = go
    if "java" in targets_of:
        java = JavaFiles(number_of, len(needs))
        needs += java.packages.needs()
        resolvers["java"] = java
    _add_plain_families(resolvers, targets_of, number_of)
    for number, family in enumerate(families):
        if family is not None:
            files, path = resolvers[family], paths[number]
            found = {node for target in imports[number] for node in files.resolve(path, target)}
            needs[number] = sorted(found - {number})
    return needs


def _add_plain_families(
    resolvers: dict[Family, FamilyFiles],
    targets_of: Mapping[Family, set[str]],
    number_of: Mapping[str, int],
) -> None:
    """Add the resolvers of families without packages, for those families only that have imports."""
    if "python" in targets_of:
        resolvers["python"] = PythonFiles(number_of, targets_of["python"])
    if "script" in targets_of:
        resolvers["script"] = ScriptFiles(number_of)
    if "c" in targets_of:
        resolvers["c"] = CFiles(number_of)
