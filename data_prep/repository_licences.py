"""The licence of a file that names none: that of its repository."""

from collections.abc import Sequence

from data_prep.corpus import Corpus
from data_prep.documents import Rejection
from data_prep.fates import Fates
from data_prep.text.licences import LicenceConfig, licence_rejection


def effective_licences(corpus: Corpus) -> list[str | None]:
    """Each row's licence: its own header's or what its source told, else that of the licence file nearest to
    its repository's root."""
    of_repository = _repository_licences(corpus)
    sources, repositories = corpus.strings("source"), corpus.strings("repository")
    return [
        own if own is not None else of_repository.get((source, repository))
        for own, source, repository in zip(corpus.strings("licence"), sources, repositories, strict=True)
    ]


def drop_by_licence(licences: Sequence[str | None], fates: Fates, config: LicenceConfig) -> None:
    """Drop the kept rows whose licence the allow-list refuses."""
    verdicts: dict[str | None, Rejection | None] = {}
    for row in fates.kept().tolist():
        licence = licences[row]
        if licence not in verdicts:
            verdicts[licence] = licence_rejection(licence, config)
        verdict = verdicts[licence]
        if verdict is not None:
            fates.drop(row, verdict)


def _repository_licences(corpus: Corpus) -> dict[tuple[str, str], str]:
    best: dict[tuple[str, str], tuple[int, str, str]] = {}
    found = corpus.strings("repository_licence")
    sources, repositories, paths = (corpus.strings(name) for name in ("source", "repository", "path"))
    for row, licence in enumerate(found):
        if licence is None:
            continue
        candidate = (paths[row].count("/"), paths[row], licence)
        key = (sources[row], repositories[row])
        best[key] = min(best.get(key, candidate), candidate)
    return {key: licence for key, (_, _, licence) in best.items()}
