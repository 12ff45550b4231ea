"""The same source, seen from another working directory."""

from pathlib import Path

from data_prep.sources.config import (
    DirectoryConfig,
    GitConfig,
    InstalledPythonConfig,
    MixtureConfig,
    SourceConfig,
)


def with_absolute_paths(config: SourceConfig) -> SourceConfig:
    """`config` with every relative local path made absolute; URLs stay."""
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


def absolute(location: str) -> str:
    """A local path made absolute; a URL as it is."""
    return location if "://" in location else str(Path(location).expanduser().absolute())
