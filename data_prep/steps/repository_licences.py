"""The licence of a file that names none: that of the nearest licence file in its folder or above."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from data_prep.corpus.decisions import Decisions
from data_prep.corpus.rows import Corpus
from data_prep.documents import Rejection
from data_prep.text.licences import UNKNOWN_LICENCE, LicenceConfig, licence_rejection

# Folders beside the code in which packages keep their licence file: wheels, eggs, jars.
_METADATA = re.compile(r"(?:^|/)(?:[^/]+\.(?:dist|egg)-info(?:/licenses)?|EGG-INFO|META-INF)$")


def effective_licences(corpus: Corpus) -> list[str | None]:
    """Return each row's licence: its own header's or its source's, else that of the nearest licence file above.

    None if none of them names a licence, or the first that does names one that is not recognised.
    """
    sources, repositories, paths = (corpus.strings(name) for name in ("source", "repository", "path"))
    of_folder = _folder_licences(corpus.strings("repository_licence"), sources, repositories, paths)
    found = (
        own if own is not None else _nearest(of_folder.get((source, repository), {}), path)
        for own, source, repository, path in zip(
            corpus.strings("licence"), sources, repositories, paths, strict=True
        )
    )
    return [None if licence == UNKNOWN_LICENCE else licence for licence in found]


def drop_by_licence(licences: Sequence[str | None], decisions: Decisions, config: LicenceConfig) -> None:
    """Drop the kept rows whose licence is not allowed."""
    verdicts: dict[str | None, Rejection | None] = {}
    for row in decisions.kept().tolist():
        licence = licences[row]
        if licence not in verdicts:
            verdicts[licence] = licence_rejection(licence, config)
        verdict = verdicts[licence]
        if verdict is not None:
            decisions.drop(row, verdict)


def _folder_licences(
    found: NDArray[np.object_],
    sources: NDArray[np.object_],
    repositories: NDArray[np.object_],
    paths: NDArray[np.object_],
) -> dict[tuple[str, str], dict[str, str]]:
    """Return, by source and repository, the licence of each folder that has a licence file."""
    best: dict[tuple[str, str], dict[str, tuple[bool, int, str, str]]] = {}
    for row, licence in enumerate(found):
        if licence is None:
            continue
        path = paths[row]
        # Of several licence files for a folder: one that is recognised, the nearest to it, the first by name.
        candidate = (licence == UNKNOWN_LICENCE, path.count("/"), path, licence)
        folders = best.setdefault((sources[row], repositories[row]), {})
        folder = _folder_of(path)
        folders[folder] = min(folders.get(folder, candidate), candidate)
    return {
        key: {folder: licence for folder, (*_, licence) in folders.items()} for key, folders in best.items()
    }


def _folder_of(path: str) -> str:
    """Return the folder that a licence file applies to; "" is the repository itself."""
    folder = _parent(path)
    metadata = _METADATA.search(folder)
    return folder if metadata is None else folder[: metadata.start()]


def _nearest(of_folder: Mapping[str, str], path: str) -> str | None:
    if not of_folder:
        return None
    while path:
        path = _parent(path)
        if path in of_folder:
            return of_folder[path]
    return None


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
