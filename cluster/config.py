"""The base of every component's config."""

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """Frozen; unknown keys, infinity and NaN are refused. Subclasses document each field with its unit."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
