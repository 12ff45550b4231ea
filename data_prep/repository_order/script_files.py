"""Resolution of JavaScript and TypeScript imports inside a repository."""

from collections.abc import Iterator, Mapping

from data_prep.repository_order.paths import ancestors, folder_of, resolve_path

# The first that exists is used, as by bundlers; declarations are used if the source does not exist.
_ENDINGS = (".ts", ".tsx", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs", ".vue", ".svelte", ".d.ts", ".json")
# An import may name the compiled file instead of its source.
_COMPILED_ENDINGS = (".js", ".jsx", ".mjs", ".cjs")
_ROOT_ALIASES = ("@/", "~/")


class ScriptFiles:
    """Resolves module specifiers to a repository's files."""

    def __init__(self, number_of: Mapping[str, int]) -> None:
        stems: dict[str, int] = {}
        for index in ("", "/index"):
            for ending in _ENDINGS:
                suffix = index + ending
                for path, number in number_of.items():
                    if path.endswith(suffix) and len(path) > len(suffix):
                        stems.setdefault(path[: -len(suffix)], number)
        for ending in _ENDINGS:
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
