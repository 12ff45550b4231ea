"""The base of every component's config."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict


class Config(BaseModel):
    """Frozen; unknown keys, infinity and NaN are refused. Subclasses document each field with its unit."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


LocalPath = Annotated[Path, AfterValidator(_absolute)]
"""Made absolute where the config is read: workers start in other folders than the command."""
