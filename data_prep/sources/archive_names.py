"""Names of an archive's members.

The repository of a member is the archive's name without suffix and version (`lib` for lib-1.0.tar.gz and for
lib-1.0-py3-none-any.whl). Its path is its name in the archive without the leading folder, if that folder is
the archive's own name (sdists and other source archives: `lib-1.0/`), or `package` in a .tgz (npm).
"""

import re
from dataclasses import dataclass

from data_prep.documents import RawFile, Rejection
from data_prep.sources.records import excluded_by

ZIP_SUFFIXES = (".zip", ".whl", ".jar", ".egg")
# Longest first, so that .tar.gz is not taken for .gz.
TAR_SUFFIXES = (
    ".tar.gz",
    ".tar.bz2",
    ".tar.xz",
    ".tar.zst",
    ".tgz",
    ".tbz2",
    ".txz",
    ".tzst",
    ".crate",
    ".tar",
)
_VERSION = re.compile(
    r"-v?\d+(?:\.\d+)*(?:[.+_-]?(?:alpha|beta|rc|dev|post|pre|final|snapshot|release|[abc]\d)[\w.+-]*)?$",
    re.IGNORECASE,
)
_SEPARATORS = re.compile(r"[-_.]+")
_DRIVE = re.compile(r"^[A-Za-z]:")


def stem_of(basename: str) -> str:
    """Return an archive's name without its suffix."""
    lowered = basename.lower()
    for suffix in (*TAR_SUFFIXES, *ZIP_SUFFIXES, ".gz", ".bz2", ".xz", ".zst"):
        if lowered.endswith(suffix) and len(basename) > len(suffix):
            return basename[: -len(suffix)]
    return basename


def repository_of(basename: str) -> str:
    """Return an archive's name without suffix and version."""
    stem = stem_of(basename)
    if basename.lower().endswith(".whl"):
        return stem.split("-")[0]
    return _VERSION.sub("", stem) or stem


def is_unsafe(name: str) -> bool:
    """Return whether a member's name is absolute, has a drive letter, leaves its folder or contains a NUL."""
    parts = re.split(r"[/\\]", name)
    return not name or name[0] in "/\\" or ".." in parts or "\0" in name or _DRIVE.match(name) is not None


@dataclass(frozen=True, slots=True)
class MemberNames:
    """Makes the rows of one archive's members; `label` is the archive's."""

    label: str
    repository: str
    stem: str
    exclude: tuple[str, ...]

    def file(
        self,
        name: str,
        offset: int,
        num_bytes: int,
        data: bytes | None = None,
        rejection: Rejection | None = None,
    ) -> RawFile:
        """Return a member's row. `offset` is where it begins, because names may repeat."""
        path = self._path(name)
        if is_unsafe(name):
            data, rejection, path = None, Rejection("unsafe_path"), name
        elif (pattern := excluded_by(self.repository, path, self.exclude)) is not None:
            data, rejection = None, Rejection("excluded", None, pattern)
        path = path.replace("\0", "\\x00")
        location = f"{self.label}!{name}@{offset}".replace("\0", "\\x00")
        return RawFile(self.repository, path, location, num_bytes, data, rejection)

    def wants(self, name: str) -> bool:
        """Return whether the member's bytes are needed at all."""
        return not is_unsafe(name) and excluded_by(self.repository, self._path(name), self.exclude) is None

    def end_row(self, rejection: Rejection, part: int = 0) -> RawFile:
        """Return the row of an archive that its reader number `part` cannot read further."""
        location = f"{self.label}!" + (f"part {part}" if part else "")
        return RawFile(self.repository, self.label, location, 0, rejection=rejection)

    def _path(self, name: str) -> str:
        name = name.removeprefix("./")
        folder, slash, rest = name.partition("/")
        if slash and rest and self._is_own(folder):
            return rest
        return name

    def _is_own(self, folder: str) -> bool:
        if folder == "package" and self.label.lower().endswith(".tgz"):
            return True
        return _SEPARATORS.sub("-", folder).lower() == _SEPARATORS.sub("-", self.stem).lower()
