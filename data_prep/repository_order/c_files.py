"""Resolution of #include inside a repository."""

from collections.abc import Iterator, Mapping

from data_prep.repository_order.paths import SuffixIndex, ancestors, folder_of, resolve_path

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
