"""Helpers that the tests of the sources share."""

from collections import Counter

from data_prep.documents import RawFile
from data_prep.sources.config import SourceConfig
from data_prep.sources.limits import ReadLimits
from data_prep.sources.plan import plan_units, read_unit
from data_prep.text.licences import is_licence_file


def read_all(config: SourceConfig, limits: ReadLimits | None = None) -> list[RawFile]:
    """Return every row of a corpus in the order of its units; check that identities are unique."""
    files = [file for unit in plan_units(config) for file in read_unit(unit, limits or ReadLimits())]
    repeated = [
        key for key, count in Counter((f.repository, f.path, f.location) for f in files).items() if count > 1
    ]
    assert not repeated
    assert all(file.data is not None or file.rejection is not None for file in files)
    # What is read of a file that is dropped all the same is its licence.
    assert all(rule_of(f) in (None, "suffix", "file_size") for f in files if f.data is not None)
    assert all(is_licence_file(f.path) for f in files if f.data is not None and f.rejection is not None)
    for file in files:
        (file.repository + file.path + file.location + str(file.rejection)).encode()  # no surrogates
    return files


def rule_of(file: RawFile) -> str | None:
    return file.rejection.rule if file.rejection else None


def rules(files: list[RawFile]) -> dict[str, str | None]:
    return {file.path: rule_of(file) for file in files}


def texts(files: list[RawFile]) -> dict[tuple[str, str], bytes]:
    return {(file.repository, file.path): file.data for file in files if file.data is not None}
