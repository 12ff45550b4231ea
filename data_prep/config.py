"""Configuration of the prep stage."""

from typing import Literal

from pydantic import Field, model_validator

from cluster.config import Config
from data_prep.decontamination.config import DecontaminationConfig
from data_prep.dedup.config import NearDuplicatesConfig
from data_prep.filters.config import FiltersConfig
from data_prep.secrets.config import SecretsConfig
from data_prep.sources.config import InstalledPythonConfig, SourceConfig
from data_prep.text.decoding import DecodingConfig
from data_prep.text.licences import LicenceConfig
from data_prep.tokenizers.config import TokenizerConfig


class SplitConfig(Config):
    """Shares of the kept text bytes to hold out, by complete repositories.

    The split has its own seed, so that the held-out repositories do not change with the run's seed.
    """

    # "file" is for corpora without repositories, or with fewer than three.
    by: Literal["repository", "file"] = "repository"
    validation_share: float = Field(default=0.03, gt=0, le=0.25)
    test_share: float = Field(default=0.05, gt=0, le=0.25)
    seed: int = 0


class OrderConfig(Config):
    """The order of a repository's files: imported files before those that import them, or by path."""

    within_repository: Literal["dependency", "path"] = "dependency"


class PrepConfig(Config):
    """The configuration of the prep stage."""

    source: SourceConfig = InstalledPythonConfig()
    decoding: DecodingConfig = DecodingConfig()
    filters: FiltersConfig = FiltersConfig()
    licences: LicenceConfig = LicenceConfig()
    secrets: SecretsConfig = SecretsConfig()
    decontamination: DecontaminationConfig = DecontaminationConfig()
    near_duplicates: NearDuplicatesConfig = NearDuplicatesConfig()
    split: SplitConfig = SplitConfig()
    order: OrderConfig = OrderConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    block_tokens: int = Field(default=1 << 20, gt=0)
    shard_tokens: int = Field(default=1 << 22, gt=0)

    @model_validator(mode="after")
    def _blocks_fit_into_shards(self) -> "PrepConfig":
        if self.block_tokens > self.shard_tokens:
            raise ValueError(
                f"block_tokens={self.block_tokens} must not exceed shard_tokens={self.shard_tokens}"
            )
        return self
