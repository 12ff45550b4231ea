"""The order of a repository's files: what a file imports stands before it."""

from collections.abc import Sequence
from dataclasses import dataclass

from data_prep.repository_order.graph import needed_first
from data_prep.repository_order.needs import needs_of_files


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """A file as far as its place is concerned; `imports` as `imports_of` gives them."""

    path: str
    language: str
    imports: tuple[str, ...] = ()


def dependency_order(files: Sequence[RepositoryFile]) -> list[int]:
    """A permutation of `files`: imported files before those that import them, path order otherwise.

    Files are taken in path order, each right after those of its imports that have not come yet. Files that import
    each other in circles stand together; among them the one that waits for the fewest of the others is next
    (DeepSeek-Coder's rule), the first by path of several. The order depends on the set of files alone, not on the
    order they are given in, and takes time almost linear in files and imports.
    """
    by_path = sorted(range(len(files)), key=lambda i: (files[i].path, files[i].language, files[i].imports, i))
    ordered = [files[i] for i in by_path]
    needs = needs_of_files(
        [file.path for file in ordered],
        [file.language for file in ordered],
        [file.imports for file in ordered],
    )
    return [by_path[node] for node in needed_first(needs) if node < len(files)]
