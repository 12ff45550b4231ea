"""What each kind of source can be told."""

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
"""Locations; those with *, ? or [ stand for all files that fit. One may be written without its list."""

_Weight = Annotated[float, Field(gt=0)]
_Budget = Annotated[int | None, Field(gt=0)]

Preset = Literal["the_stack_v1", "the_stack_v2", "codesearchnet", "starcoderdata"]


class InstalledPythonConfig(Config):
    """The Python code of this environment: the standard library and every pure-Python distribution."""

    kind: Literal["installed_python"] = "installed_python"
    # How often its documents are taken, relative to a mixture's other parts.
    weight: _Weight = 1.0
    # Shell patterns on repository names ("pip", "python/test") or on file paths ("*/_vendor/*").
    exclude: tuple[str, ...] = ()
    # Whole repositories are read, in a fixed random order, while they fit; None reads all.
    max_total_bytes: _Budget = None


class DirectoryConfig(Config):
    """A folder of source trees; each folder directly below it is a repository."""

    kind: Literal["directory"] = "directory"
    weight: _Weight = 1.0
    path: Location
    # Endings of file names; None takes every file. Licence files are read for their licence, whatever they end with.
    suffixes: tuple[str, ...] | None = None
    # Makes the whole tree one repository of that name.
    repository: str | None = None
    exclude: tuple[str, ...] = ()
    # Reads also other projects' code and what builds leave behind (`vendored.py`): node_modules, third_party, build ...
    keep_vendored: bool = False
    max_total_bytes: _Budget = None


class GitConfig(Config):
    """Local git repositories, bare or with a working tree, at a revision; nothing is checked out."""

    kind: Literal["git"] = "git"
    weight: _Weight = 1.0
    path: Locations
    revision: str = Field(default="HEAD", min_length=1)
    # The repository's name, if there is one only; else its folder's name without `.git`.
    repository: str | None = None
    exclude: tuple[str, ...] = ()
    # As of a directory.
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
    # The repository of all; None: each archive's own name without version and suffix.
    repository: str | None = None
    # Leading folders cut off every member's path; None: the rule of `archive_names`.
    strip_folders: int | None = Field(default=None, ge=0)
    exclude: tuple[str, ...] = ()


class ColumnsConfig(Config):
    """Columns of a table of files; dots reach into nested ones ("repo.name"). None: there is none."""

    content: str = "content"
    repository: str | None = None
    path: str | None = None
    language: str | None = None
    # A text, or a list of texts, all of which hold.
    licence: str | None = None
    stars: str | None = None
    # A column that lists files, each with the columns above; what one lacks is taken from the row.
    files: str | None = None


class _TableConfig(Config):
    urls: Locations
    weight: _Weight = 1.0
    # The published columns of a dataset; `columns` must then be left out.
    preset: Preset | None = None
    columns: ColumnsConfig | None = None
    # For records that name none; None: the file's name.
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
    """Several sources under names of their own; documents of a part are taken by its `weight`."""

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
