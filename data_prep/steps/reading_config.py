"""The configuration that the reading of a file depends on."""

import sys
from importlib.metadata import version
from typing import Any

from cluster.config import Config
from data_prep.config import PrepConfig
from data_prep.dedup.config import NearDuplicatesConfig
from data_prep.filters.config import FiltersConfig
from data_prep.secrets.config import SecretsConfig
from data_prep.text.decoding import DecodingConfig


class ReadingConfig(Config):
    """The part of the prep config that the result of reading a file depends on."""

    decoding: DecodingConfig
    filters: FiltersConfig
    secrets: SecretsConfig
    near_duplicates: NearDuplicatesConfig
    wants_imports: bool

    @classmethod
    def of(cls, config: PrepConfig) -> "ReadingConfig":
        return cls(
            decoding=config.decoding,
            filters=config.filters,
            secrets=config.secrets,
            near_duplicates=config.near_duplicates,
            wants_imports=config.order.within_repository == "dependency",
        )

    def key(self) -> list[Any]:
        """Return everything that the result depends on besides the file."""
        return [self.model_dump(mode="json"), self.versions()]

    def versions(self) -> dict[str, str]:
        """Return the versions of the programs that influence what is kept."""
        found = {name: version(name) for name in ("license-expression", "pygments")}
        if self.filters.parses:
            found["python"] = ".".join(map(str, sys.version_info[:2]))
        filters = self.filters
        parsed = (filters.max_parse_error_share, filters.min_comment_share, filters.max_comment_share)
        if any(limit is not None for limit in parsed):
            found |= {name: version(name) for name in ("tree-sitter", "tree-sitter-language-pack")}
        return found
