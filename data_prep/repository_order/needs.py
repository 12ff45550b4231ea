"""Dependencies between the files of a repository, from their imports."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from data_prep.repository_order.c_files import CFiles
from data_prep.repository_order.families import Family, family_of
from data_prep.repository_order.go_files import GoFiles
from data_prep.repository_order.java_files import JavaFiles
from data_prep.repository_order.python_files import PythonFiles
from data_prep.repository_order.script_files import ScriptFiles


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
