"""Units of files that were listed individually, and their reader."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from cluster.errors import UserError
from cluster.storage import fingerprint
from data_prep.documents import RawFile, Rejection
from data_prep.pseudo_random import keyed_hash
from data_prep.sources.limits import ReadLimits
from data_prep.sources.records import excluded_by
from data_prep.sources.remote import filesystem, is_remote, open_regular, retry_remote
from data_prep.sources.units import WorkUnit, cut_runs, rejection_key
from data_prep.text.licences import is_licence_file


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file and its place (path or URL).

    `num_bytes` is None if a server does not report it. `mark` changes with the content. `rejection` says why the file
    must not be opened, or, for a licence file with rule `suffix`, why it is read for its licence only.
    """

    repository: str
    path: str
    location: str
    place: str
    num_bytes: int | None
    mark: str
    licence: str | None = None
    rejection: Rejection | None = None


def unreadable(error: OSError) -> Rejection:
    """Return a rejection for an error of the system, with its errno and its message without the path."""
    return Rejection("readable", float(error.errno or 0), error.strerror)


def plan_listed(
    source: str,
    listed: Iterable[ListedFile],
    exclude: tuple[str, ...],
    max_total_bytes: int | None,
    where: str,
) -> list[WorkUnit]:
    """Return units of consecutive files in the order (repository, path), after exclusion and budget.

    UserError, which names `where`, if there is no file that may be opened.
    """
    files = sorted(listed, key=lambda file: (file.repository, file.path, file.place))
    files = [_apply_exclude(file, exclude) for file in files] if exclude else files
    if all(file.rejection for file in files):
        rules = Counter(file.rejection.rule for file in files if file.rejection is not None)
        vendored = (
            f", {rules['vendored']} vendored (`keep_vendored: true` keeps them)" if rules["vendored"] else ""
        )
        raise UserError(
            f"no usable file: found {len(files)} files in {where}, {rules['excluded']} excluded by `exclude`"
            f"{vendored}; point the source at a corpus"
        )
    files = _number_repeats(_apply_budget(files, max_total_bytes))
    units = []
    sizes = [0 if file.rejection else file.num_bytes or 0 for file in files]
    for number, run in enumerate(cut_runs(sizes)):
        part = tuple(files[run])
        key = [
            (f.repository, f.path, f.location, f.num_bytes, f.mark, f.licence, rejection_key(f.rejection))
            for f in part
        ]
        name = f"{number:06} {part[0].repository}"
        units.append(
            WorkUnit(source, name, sum(sizes[run]), fingerprint(["listed", key]), ListedReader(part))
        )
    return units


@dataclass(frozen=True, slots=True)
class ListedReader:
    """The reader of a run of listed files."""

    files: tuple[ListedFile, ...]

    def read(self, limits: ReadLimits) -> Iterator[RawFile]:
        for file in self.files:
            data, rejection, num_bytes = None, file.rejection, file.num_bytes or 0
            is_refused = file.rejection is not None and not _is_for_licence(file)
            if not is_refused and (file.num_bytes is None or limits.wants(file.path, file.num_bytes)):
                try:
                    data = _read(file.place, limits.max_bytes_of(file.path) + 1)
                    num_bytes = len(data)
                except OSError as error:
                    rejection = unreadable(error)
            if not limits.wants(file.path, num_bytes):  # it may have changed since it was listed
                data = None
            rejection = rejection or limits.size_rejection(num_bytes)
            yield RawFile(
                file.repository, file.path, file.location, num_bytes, data, rejection, licence=file.licence
            )


def _is_for_licence(file: ListedFile) -> bool:
    """Return whether a file that `suffixes` excludes is read for its repository's licence."""
    return file.rejection is not None and file.rejection.rule == "suffix" and is_licence_file(file.path)


def _read(place: str, max_bytes: int) -> bytes:
    if is_remote(place):
        system, path = filesystem(place)

        def read() -> bytes:
            with system.open(path, "rb") as file:
                return bytes(file.read(max_bytes))

        return retry_remote(place, read)
    with open_regular(place) as file:
        parts = []
        # Raw reads may be short, and the file may have grown.
        while max_bytes > 0 and (part := file.read(min(max_bytes, 1 << 20))):
            parts.append(part)
            max_bytes -= len(part)
        return b"".join(parts)


def _apply_exclude(file: ListedFile, exclude: tuple[str, ...]) -> ListedFile:
    pattern = excluded_by(file.repository, file.path, exclude)
    return file if pattern is None else replace(file, rejection=Rejection("excluded", None, pattern))


def _apply_budget(files: list[ListedFile], max_total_bytes: int | None) -> list[ListedFile]:
    """Keep complete repositories, in keyed-hash order, that still fit; reject the others' files by rule `budget`."""
    if max_total_bytes is None:
        return files
    num_bytes_of: dict[str, int] = {}
    for file in files:
        if file.rejection is None:
            num_bytes_of[file.repository] = num_bytes_of.get(file.repository, 0) + (file.num_bytes or 0)
    over: set[str] = set()
    left_bytes = max_total_bytes
    for name in sorted(num_bytes_of, key=lambda name: keyed_hash(0, "budget", name)):
        if num_bytes_of[name] <= left_bytes:
            left_bytes -= num_bytes_of[name]
        else:
            over.add(name)
    return [
        replace(file, rejection=Rejection("budget"))
        if file.repository in over and (file.rejection is None or _is_for_licence(file))
        else file
        for file in files
    ]


def _number_repeats(files: list[ListedFile]) -> list[ListedFile]:
    """Set a number as the location of files whose printable name repeats."""
    result = []
    before: tuple[str, str] | None = None
    number = 0
    for file in files:
        name = (file.repository, file.path)
        number = number + 1 if name == before else 0
        before = name
        result.append(replace(file, location=f"#{number}") if number else file)
    return result


def name_of(path: str) -> str:
    """Return the last part of a folder's path or URL."""
    return os.path.basename(path.rstrip("/"))
