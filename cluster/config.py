"""The base class of all configurations."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict


class Config(BaseModel):
    """Immutable; unknown keys, infinity and NaN are refused. Subclasses document each field with its unit."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


LocalPath = Annotated[Path, AfterValidator(_absolute)]
"""A path made absolute when the config is read, because workers start in other folders than the command."""
