"""The config of the corpora that training reads."""

from pydantic import Field, field_validator

from cluster.config import Config
from data_prep.sources.config import absolute

MAX_WEIGHT = 1000.0


class CorpusConfig(Config):
    """A finished prep folder besides the run's own, made with the same tokenizer."""

    location: str
    """A path, made absolute because workers run in other folders, or a URL that fsspec opens."""
    weight: float = Field(default=1.0, gt=0, le=MAX_WEIGHT)
    """How many times an epoch reads it, multiplied by the weights of its sources."""

    @field_validator("location")
    @classmethod
    def _is_absolute(cls, location: str) -> str:
        return absolute(location)


class DataConfig(Config):
    """The corpora that are mixed. Validation reads the run's own alone."""

    own_weight: float = Field(default=1.0, ge=0, le=MAX_WEIGHT)
    """How many times an epoch reads the run's own corpus; 0 leaves it to validation."""
    corpora: tuple[CorpusConfig, ...] = ()

    def locations(self, own: str) -> tuple[str, ...]:
        """Return the locations of the corpora that training reads; `own` is the location of the run's own."""
        return (*((own,) if self.own_weight > 0 else ()), *(other.location for other in self.corpora))
