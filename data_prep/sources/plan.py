"""Planning of a source's units of work."""

from collections.abc import Callable, Iterator
from typing import Any

from data_prep.documents import RawFile
from data_prep.sources.archives import plan_archives
from data_prep.sources.config import (
    ArchivesConfig,
    DirectoryConfig,
    GitConfig,
    InstalledPythonConfig,
    JsonlConfig,
    MixtureConfig,
    ParquetConfig,
    SourceConfig,
)
from data_prep.sources.directory import plan_directory
from data_prep.sources.git import plan_git
from data_prep.sources.installed_python import plan_installed_python
from data_prep.sources.jsonl import plan_jsonl
from data_prep.sources.limits import ReadLimits
from data_prep.sources.parquet import plan_parquet
from data_prep.sources.units import WorkUnit

_PLANNERS: dict[type, Callable[[Any, str], list[WorkUnit]]] = {
    InstalledPythonConfig: plan_installed_python,
    DirectoryConfig: plan_directory,
    GitConfig: plan_git,
    ArchivesConfig: plan_archives,
    JsonlConfig: plan_jsonl,
    ParquetConfig: plan_parquet,
}


def plan_units(config: SourceConfig) -> list[WorkUnit]:
    """Return every unit of work of a corpus, in a fixed order.

    Only listings, tables of contents and the beginnings of tables are read. A unit's `source` is the mixture part's
    name, else the source's kind. UserError when a source is missing, completely unreadable or empty, or lacks a column
    that the user names.
    """
    if isinstance(config, MixtureConfig):
        return [unit for name, part in config.parts.items() for unit in _plan(part, name)]
    return _plan(config, config.kind)


def read_unit(unit: WorkUnit, limits: ReadLimits) -> Iterator[RawFile]:
    """Yield the unit's files in a fixed order; a file that cannot be read is a row with the reason.

    UserError only when a remote source does not answer after all retries, or has changed since planning.
    """
    return unit.reader.read(limits)


def _plan(config: Any, source: str) -> list[WorkUnit]:
    return _PLANNERS[type(config)](config, source)
