"""Configuration of the kinds of source."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from cluster.config import Config


def _text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, Path) else value


def _tuple(value: Any) -> Any:
    return (_text(value),) if isinstance(value, str | Path) else value


Location = Annotated[str, BeforeValidator(_text), StringConstraints(min_length=1)]
"""A local path (`~` is the home folder) or a URL that fsspec opens: s3://, http(s)://, file://, memory://."""

Locations = Annotated[tuple[Location, ...], BeforeValidator(_tuple), Field(min_length=1)]
"""Locations; one with *, ? or [ is a pattern for all files that match. A single one may be written without a list."""

_Weight = Annotated[float, Field(gt=0)]
_Budget = Annotated[int | None, Field(gt=0)]

Preset = Literal["the_stack_v1", "the_stack_v2", "codesearchnet", "starcoderdata"]


class InstalledPythonConfig(Config):
    """The Python code of this environment: the standard library and every pure-Python distribution."""

    kind: Literal["installed_python"] = "installed_python"
    # How often its documents are sampled, relative to a mixture's other parts.
    weight: _Weight = 1.0
    # Shell patterns on repository names ("pip", "python/test") or on file paths ("*/_vendor/*").
    exclude: tuple[str, ...] = ()
    # Complete repositories are read, in a fixed random order, as long as they fit; None reads all.
    max_total_bytes: _Budget = None


class DirectoryConfig(Config):
    """A folder of source trees; each folder directly below it is a repository."""

    kind: Literal["directory"] = "directory"
    weight: _Weight = 1.0
    path: Location
    # Endings of file names; None takes every file. Licence files are always read for their licence.
    suffixes: tuple[str, ...] | None = None
    # Makes the tree one repository with this name.
    repository: str | None = None
    exclude: tuple[str, ...] = ()
    # Also reads other projects' code and build outputs (`vendored.py`): node_modules, third_party, build ...
    keep_vendored: bool = False
    max_total_bytes: _Budget = None


class GitConfig(Config):
    """Local git repositories, bare or with a working tree, at a revision; nothing is checked out."""

    kind: Literal["git"] = "git"
    weight: _Weight = 1.0
    path: Locations
    revision: str = Field(default="HEAD", min_length=1)
    # The repository's name, if there is only one; by default its folder's name without `.git`.
    repository: str | None = None
    exclude: tuple[str, ...] = ()
    # As in `DirectoryConfig`.
    keep_vendored: bool = False

    @field_validator("revision")
    @classmethod
    def _no_option(cls, revision: str) -> str:
        if revision.startswith("-") or "\0" in revision or "\n" in revision:
            raise ValueError(f"revision {revision!r} is not the name of a commit, branch or tag")
        return revision


class ArchivesConfig(Config):
    """Archives: zip, whl, jar, tar, tar.gz, tgz, tar.bz2, tar.xz, tar.zst; and single texts in .gz, .zst, ..."""

    kind: Literal["archives"] = "archives"
    weight: _Weight = 1.0
    urls: Locations
    # The repository of all archives; None: each archive's name without version and suffix.
    repository: str | None = None
    exclude: tuple[str, ...] = ()


class ColumnsConfig(Config):
    """Columns of a table of files; dots lead into nested ones ("repo.name"). None: there is no such column."""

    content: str = "content"
    repository: str | None = None
    path: str | None = None
    language: str | None = None
    # A string, or a list of strings, all of which apply.
    licence: str | None = None
    stars: str | None = None
    # A column with a list of files, each with the columns above; values that a file lacks are taken from the row.
    files: str | None = None


class _TableConfig(Config):
    urls: Locations
    weight: _Weight = 1.0
    # The published columns of a dataset; excludes `columns`.
    preset: Preset | None = None
    columns: ColumnsConfig | None = None
    # The repository of records that name none; None: the file's name.
    repository: str | None = None
    exclude: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_mapping(self) -> "_TableConfig":
        if self.preset is not None and self.columns is not None:
            raise ValueError("`preset` and `columns` exclude each other: leave one out")
        return self


class JsonlConfig(_TableConfig):
    """One JSON object per line, one file of code per object; plain, .gz, .zst, .bz2 or .xz."""

    kind: Literal["jsonl"] = "jsonl"


class ParquetConfig(_TableConfig):
    """Parquet files, one file of code per row."""

    kind: Literal["parquet"] = "parquet"


SingleSourceConfig = Annotated[
    InstalledPythonConfig | DirectoryConfig | GitConfig | ArchivesConfig | JsonlConfig | ParquetConfig,
    Field(discriminator="kind"),
]

PartName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]


class MixtureConfig(Config):
    """Several named sources; a part's documents are sampled by its `weight`."""

    kind: Literal["mixture"] = "mixture"
    parts: dict[PartName, SingleSourceConfig] = Field(min_length=1)


SourceConfig = Annotated[
    InstalledPythonConfig
    | DirectoryConfig
    | GitConfig
    | ArchivesConfig
    | JsonlConfig
    | ParquetConfig
    | MixtureConfig,
    Field(discriminator="kind"),
]


_GLOB = frozenset("*?[")


def with_absolute_paths(config: SourceConfig) -> SourceConfig:
    """Return `config` with every relative local path made absolute; URLs stay."""
    if isinstance(config, MixtureConfig):
        parts = {name: with_absolute_paths(part) for name, part in config.parts.items()}
        return config.model_copy(update={"parts": parts})
    if isinstance(config, InstalledPythonConfig):
        return config
    if isinstance(config, DirectoryConfig):
        return config.model_copy(update={"path": absolute(config.path)})
    if isinstance(config, GitConfig):
        return config.model_copy(update={"path": tuple(map(absolute, config.path))})
    return config.model_copy(update={"urls": tuple(map(absolute, config.urls))})


def local_paths(config: SourceConfig) -> list[Path]:
    """Return the local files and folders that `config` reads, which all nodes of a cluster must see."""
    if isinstance(config, MixtureConfig):
        return [path for part in config.parts.values() for path in local_paths(part)]
    if isinstance(config, InstalledPythonConfig):
        return []
    if isinstance(config, DirectoryConfig):
        locations: tuple[str, ...] = (config.path,)
    else:
        locations = tuple(config.path) if isinstance(config, GitConfig) else tuple(config.urls)
    return [Path(absolute(one)) for one in locations if "://" not in one and not _GLOB & set(one)]


def absolute(location: str) -> str:
    """Return a local path made absolute, or a URL unchanged."""
    return location if "://" in location else str(Path(location).expanduser().absolute())
