"""What one run is: the resolved form of a recipe and its overrides."""

from pydantic import Field, model_validator

from cluster.config import Config
from cluster.ray_session import RayConfig
from data_prep.config import PrepConfig
from finetune.config import FinetuneConfig
from pretrain.config import PretrainConfig
from pretrain.model.config import AbsoluteLearnedPositions

# Where a run executes and where its numbers are shown change no output, so they may differ between two
# commands on the same output folder.
KEYS_WITHOUT_EFFECT_ON_OUTPUTS = frozenset({"ray", "tracking"})


class TrackingConfig(Config):
    """`store`: an MLflow tracking URI (`http://HOST:5000`); null is an SQLite file in the output folder."""

    store: str | None = None
    experiment: str = "permcode"


class PlaceConfig(Config):
    """Where a run executes and where its numbers are shown."""

    ray: RayConfig = Field(default_factory=RayConfig)
    tracking: TrackingConfig = Field(default_factory=TrackingConfig)


class RunConfig(PlaceConfig):
    """One run. `seed` fixes every random choice of every stage."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    prep: PrepConfig
    pretrain: PretrainConfig
    finetune: FinetuneConfig

    @model_validator(mode="after")
    def _tasks_have_positions(self) -> "RunConfig":
        positions = self.pretrain.model.positions
        if not isinstance(positions, AbsoluteLearnedPositions):
            return self
        completion, search = self.finetune.completion, self.finetune.search
        lengths_tokens = {
            "completion.segment_tokens": completion.segment_tokens,
            "search.code_tokens": search.code_tokens,
            "search.query_tokens": search.query_tokens,
        }
        for key, length_tokens in lengths_tokens.items():
            if length_tokens > positions.max_positions:
                raise ValueError(
                    f"finetune.{key}={length_tokens} is more than the model can place, "
                    f"pretrain.model.positions.max_positions={positions.max_positions}: make one of them fit the other"
                )
        return self
