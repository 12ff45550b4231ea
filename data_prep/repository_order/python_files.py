"""Resolution of Python imports inside a repository."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from data_prep.repository_order.paths import SuffixIndex, ancestors, folder_of, resolve_path

# The first that exists is the module: what Python itself would run, before stubs and Cython sources.
_ENDINGS = ("/__init__.py", ".py", "/__init__.pyi", ".pyi", ".pyx", ".pxd")
# Folders of a repository that are usually on Python's path.
_SOURCE_FOLDERS = ("", "src/", "lib/", "python/")


class PythonFiles:
    """Resolves Python imports to a repository's modules."""

    def __init__(self, number_of: Mapping[str, int], targets: Iterable[str]) -> None:
        """`targets` are all imports of the repository's Python files, from which the name of a repository that is
        itself a package is inferred."""
        modules: dict[str, int] = {}
        packages: set[str] = set()
        for ending in _ENDINGS:
            for path, number in number_of.items():
                if path.endswith(ending) and len(path) > len(ending):
                    modules.setdefault(path[: -len(ending)], number)
                    if ending.startswith("/"):
                        packages.add(folder_of(path))
        self._number_of, self._modules, self._packages = number_of, modules, packages
        self._importable = _add_folders(modules)
        self._tops = {name.rpartition("/")[2] for name in self._importable}
        self._elsewhere = SuffixIndex(modules)
        self._own_name = self._name_of_root(targets) if "__init__.py" in number_of else None
        self._roots: dict[tuple[str, str], str | None] = {}

    def resolve(self, importer: str, target: str) -> Iterator[int]:
        """Yield the file that `target` means in the file `importer`, if it is in the repository.

        Absolute names are looked for in the repository itself if it is a package of that name; in the folders above
        the importer that are not packages, the nearest first, and in their src, lib and python; then anywhere in the
        repository, if the name is dotted or a package.
        """
        name = target.lstrip(".")
        num_dots = len(target) - len(name)
        inner = name.replace(".", "/")
        if num_dots == 0:
            found = self._absolute(importer, inner)
        else:
            base = resolve_path(folder_of(importer), "../" * (num_dots - 1))
            found = None if base is None else self._module(f"{base}/{inner}".strip("/"), base)
        if found is not None:
            yield found

    def _module(self, name: str, base: str) -> int | None:
        """Return the module `name`, or the module of an attribute `name`, but none above `base`."""
        if name in self._modules:
            return self._modules[name]
        if name == base:
            return None if name else self._number_of.get("__init__.py")
        outer = name.rpartition("/")[0]
        if len(outer) < len(base):
            return None
        return self._modules.get(
            outer, self._number_of.get(f"{outer}/__init__.py" if outer else "__init__.py")
        )

    def _absolute(self, importer: str, inner: str) -> int | None:
        top, _, below = inner.partition("/")
        if top == self._own_name:
            return self._module(below, "")
        if top not in self._tops:
            return None
        folder = folder_of(importer)
        if (folder, top) not in self._roots:
            self._roots[folder, top] = self._root(folder, top)
        root = self._roots[folder, top]
        if root is not None:
            return self._module(root + inner, root + top)
        return self._find_elsewhere(inner, importer)

    def _name_of_root(self, targets: Iterable[str]) -> str | None:
        """Return the most frequent first part of targets that are modules without it."""
        counts: Counter[str] = Counter()
        for target in targets:
            top, _, below = target.partition(".")
            if (
                top
                and below
                and self._module(below.replace(".", "/"), "") not in (None, self._number_of["__init__.py"])
            ):
                counts[top] += 1
        return min(counts, key=lambda name: (-counts[name], name), default=None)

    def _root(self, folder: str, top: str) -> str | None:
        """Return the folder on the importer's path that contains `top`."""
        for above in ancestors(folder):
            if above in self._packages:
                continue
            for inside in _SOURCE_FOLDERS:
                if above + inside + top in self._importable and above + inside not in self._packages:
                    return above + inside
        return None

    def _find_elsewhere(self, inner: str, importer: str) -> int | None:
        for name in (inner, inner.rpartition("/")[0]):
            found = self._elsewhere.nearest(name, importer) if name else None
            if found is None or found[: len(found) - len(name)] in self._packages:
                continue
            # A single module elsewhere probably just has the name of an installed one.
            if "/" in name or f"{found}/" in self._packages:
                return self._modules[found]
        return None


def _add_folders(modules: Mapping[str, int]) -> set[str]:
    """Return modules and all folders above them, because a package need not have an __init__ file."""
    names = set(modules)
    for name in modules:
        for above in ancestors(folder_of(name)):
            if above[:-1] in names:
                break
            names.add(above[:-1])
    return names
