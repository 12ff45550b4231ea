"""Order of a repository's files in which imported files come before the files that import them."""

from collections.abc import Sequence
from dataclasses import dataclass

from data_prep.repository_order.graph import dependencies_first
from data_prep.repository_order.needs import needs_of_files


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """The properties of a file that decide its place; `imports` are those of `imports_of`."""

    path: str
    language: str
    imports: tuple[str, ...] = ()


def dependency_order(files: Sequence[RepositoryFile]) -> list[int]:
    """Return a permutation of `files`: imported files before those that import them, path order otherwise.

    Files are taken in path order, each right after those of its imports that are not placed yet. Files that import
    each other in cycles are consecutive; of them the one that still needs the fewest of the others is next
    (DeepSeek-Coder's rule), the first by path of several. The order depends on the set of files only, not on their
    order in `files`, and takes time almost linear in files and imports.
    """
    by_path = sorted(range(len(files)), key=lambda i: (files[i].path, files[i].language, files[i].imports, i))
    ordered = [files[i] for i in by_path]
    needs = needs_of_files(
        [file.path for file in ordered],
        [file.language for file in ordered],
        [file.imports for file in ordered],
    )
    return [by_path[node] for node in dependencies_first(needs) if node < len(files)]
