"""What the prep stage can be told."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from cluster.config import Config
from data_prep.documents import SPECIAL_TOKENS

# A byte-level vocabulary holds the special tokens and one token per byte before its first merge.
MIN_VOCAB_SIZE = len(SPECIAL_TOKENS) + 256


class InstalledPythonConfig(Config):
    """The Python code of this environment: the standard library and every pure-Python distribution."""

    kind: Literal["installed_python"] = "installed_python"
    # Shell patterns on repository names ("pip", "python/test") or on file paths ("*/_vendor/*").
    exclude: tuple[str, ...] = ()
    # Whole repositories are read, in a fixed random order, while they fit; None reads all.
    max_total_bytes: int | None = Field(default=None, gt=0)


class DirectoryConfig(Config):
    """A folder of source trees; each folder directly below it is a repository."""

    kind: Literal["directory"] = "directory"
    path: Path
    suffixes: tuple[str, ...] = (".py",)
    exclude: tuple[str, ...] = ()
    max_total_bytes: int | None = Field(default=None, gt=0)


SourceConfig = Annotated[InstalledPythonConfig | DirectoryConfig, Field(discriminator="kind")]


class FiltersConfig(Config):
    """The limits a file must keep to; the line and share limits are those of The Stack and StarCoder."""

    min_file_bytes: int = Field(default=64, ge=0)
    max_file_bytes: int = Field(default=1 << 20, gt=0)
    max_line_chars: int = Field(default=1000, gt=0)
    max_mean_line_chars: float = Field(default=100.0, gt=0)
    min_alphanumeric_share: float = Field(default=0.25, ge=0, le=1)
    # Python files must parse with the interpreter that runs the stage.
    parses: bool = True


class SplitConfig(Config):
    """Shares of the kept text bytes held out, by whole repositories; its own seed keeps the held-out
    repositories the same while the run's seed changes."""

    validation_share: float = Field(default=0.03, gt=0, le=0.25)
    test_share: float = Field(default=0.05, gt=0, le=0.25)
    seed: int = 0


class TokenizerConfig(Config):
    """Byte-level BPE, trained on a sample of the train split."""

    vocab_size: int = Field(default=8192, ge=MIN_VOCAB_SIZE)
    sample_bytes: int = Field(default=16_000_000, gt=0)


class PrepConfig(Config):
    """The whole prep stage."""

    source: SourceConfig = InstalledPythonConfig()
    filters: FiltersConfig = FiltersConfig()
    split: SplitConfig = SplitConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    block_tokens: int = Field(default=1 << 20, gt=0)
    shard_tokens: int = Field(default=1 << 22, gt=0)
    # Parts that the files are read in, each a task; at most as many as there are files.
    num_partitions: int = Field(default=32, gt=0)

    @model_validator(mode="after")
    def _blocks_fit_into_shards(self) -> "PrepConfig":
        if self.block_tokens > self.shard_tokens:
            raise ValueError(
                f"block_tokens={self.block_tokens} must not exceed shard_tokens={self.shard_tokens}"
            )
        return self
