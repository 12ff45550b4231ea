"""The config of a pretraining run."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from cluster.config import Config
from pretrain.data.config import DataConfig
from pretrain.model.config import MAX_TEXT_TOKENS, AbsoluteLearnedPositions, ModelConfig, Recompute
from pretrain.orders.config import MIN_HOLES, ObjectiveConfig, most_holes
from pretrain.schedule import ScheduleConfig


class OptimizerConfig(Config):
    """AdamW with gradients clipped to a global norm."""

    layer_decay: float = Field(default=1.0, gt=0.0, le=1.0)
    """Learning rate of a layer as a share of the rate of the layer above it; the head has the full rate."""

    weight_decay: NonNegativeFloat = 0.01
    beta2: float = Field(default=0.98, ge=0.0, lt=1.0)
    epsilon: PositiveFloat = 1e-6
    clip_norm: PositiveFloat = 1.0


class CheckpointConfig(Config):
    """The interval of checkpoints, and the ones that are kept: the newest, some milestones, the best."""

    every_steps: PositiveInt = 100
    keep: PositiveInt = 2
    """How many of the newest checkpoints are kept."""
    keep_every_steps: NonNegativeInt = 0
    """Checkpoints whose step is a multiple of this are never removed; 0 switches this off."""
    keep_best: bool = True
    """Whether the checkpoint with the fewest validation bits per byte is kept."""


class HealthConfig(Config):
    """Handling of steps that are not finite, loss spikes, hanging and slow workers."""

    max_skipped_steps: PositiveInt = 5
    """Steps in a row whose loss or gradient is not finite (they are not applied) before the run stops."""
    spikes: Literal["off", "warn", "rewind"] = "warn"
    """What to do about a loss far above the recent ones: warn, or resume from the last checkpoint behind its data."""
    spike_window_steps: int = Field(default=100, ge=10)
    spike_threshold: PositiveFloat = 8.0
    """The threshold above the window's median, in robust deviations (median absolute deviation)."""
    spike_patience_steps: int = Field(default=3, ge=1, le=50)
    """How many consecutive steps above the threshold make a spike."""
    max_rewinds: NonNegativeInt = 3
    hang_timeout_s: PositiveFloat = 1800.0
    """How long a worker may be without progress before stacks are written and the workers end."""
    straggler_every_steps: PositiveInt = 100
    """How often the workers' own times are compared."""


class ValidationConfig(Config):
    """Bits per byte on the validation split: left to right with memory, and in other conditions if chosen."""

    every_steps: PositiveInt = 100
    during_tokens: PositiveInt = 32_768
    """Tokens scored during training; rounded up to whole segments of every lane."""
    during_order_tokens: PositiveInt = 4096
    """Tokens of these that are also scored in the other conditions, rounded up in the same way."""
    final_tokens: PositiveInt = 262_144
    """Tokens scored at the end, the same in all conditions and for the n-gram baselines."""
    by_order: bool = True
    """Score also any order and infilling, and every order without memory."""


class WorkerRange(Config):
    """The numbers of workers that a run may have: `max` where the cluster has room, fewer while it has not."""

    min: PositiveInt
    max: PositiveInt

    @model_validator(mode="after")
    def _is_a_range(self) -> "WorkerRange":
        if self.min > self.max:
            raise ValueError(f"min={self.min} must not be more than max={self.max}")
        return self


class PretrainConfig(Config):
    """A pretraining run. Batch shape: `lanes` segments of `segment_tokens` tokens per optimizer step."""

    model: ModelConfig = ModelConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    validation: ValidationConfig = ValidationConfig()
    health: HealthConfig = HealthConfig()
    data: DataConfig = DataConfig()
    num_steps: PositiveInt
    lanes: int = Field(default=16, gt=0, le=1_048_576)
    """L: parallel streams of the corpus, over all workers; must be a multiple of workers times micro batch."""
    micro_batch_lanes: int = Field(default=8, gt=0, le=65_536)
    """Lanes per forward pass on one worker."""
    segment_tokens: int = Field(default=256, gt=0, le=MAX_TEXT_TOKENS)
    num_workers: PositiveInt | WorkerRange = 2
    """The workers; with {min, max} the run goes on with fewer when nodes are lost, and grows again."""
    zero_stage: Literal[0, 1, 2, 3] = 2
    offload_optimizer: bool = False
    """Keep the optimizer's state in CPU memory and update there (ZeRO 1 to 3)."""
    offload_parameters: bool = False
    """Keep parameters in CPU memory (ZeRO 3)."""
    deterministic: bool = False
    """Whether any number of workers gives the same bits: gradients are summed in one fixed tree (ZeRO 0 to 2)."""
    threads_per_worker: PositiveInt | None = None
    """CPU threads of a worker; None is PyTorch's default, and one thread when `deterministic`."""
    precision: Literal["bf16", "fp32"] = "bf16"
    recompute: Recompute = "none"
    """What is computed again in the backward pass, for less memory: queries, keys, values and attention, or layers."""
    compile: bool = False
    """Whether the model is compiled by torch.compile."""
    max_worker_restarts: NonNegativeInt = 2
    """How often Ray Train may restart the workers from the last checkpoint without a new one before the run fails."""

    @model_validator(mode="after")
    def _lanes_divide(self) -> "PretrainConfig":
        unit = self.max_workers * self.micro_batch_lanes
        if self.lanes % unit:
            raise ValueError(
                f"lanes={self.lanes} must be a multiple of num_workers * micro_batch_lanes = "
                f"{self.max_workers} * {self.micro_batch_lanes} = {unit}"
            )
        return self

    @model_validator(mode="after")
    def _offload_has_a_stage(self) -> "PretrainConfig":
        if self.offload_optimizer and self.zero_stage == 0:
            raise ValueError("offload_optimizer=true needs zero_stage 1, 2 or 3, not 0")
        if self.offload_parameters and self.zero_stage < 3:
            raise ValueError(f"offload_parameters=true needs zero_stage 3, not {self.zero_stage}")
        return self

    @model_validator(mode="after")
    def _deterministic_holds(self) -> "PretrainConfig":
        if not self.deterministic:
            return self
        if self.zero_stage == 3:
            raise ValueError("deterministic=true needs zero_stage 0, 1 or 2, not 3")
        if self.offload_optimizer:
            raise ValueError("deterministic=true needs offload_optimizer=false")
        micro_batches = self.lanes // self.micro_batch_lanes
        if micro_batches & (micro_batches - 1):
            raise ValueError(
                f"deterministic=true needs a power of two of micro-batches, not lanes / micro_batch_lanes = "
                f"{self.lanes} / {self.micro_batch_lanes} = {micro_batches}"
            )
        return self

    @model_validator(mode="after")
    def _warmup_ends(self) -> "PretrainConfig":
        if self.schedule.warmup_steps >= self.num_steps:
            raise ValueError(
                f"schedule.warmup_steps={self.schedule.warmup_steps} must be less than num_steps={self.num_steps}"
            )
        return self

    @model_validator(mode="after")
    def _objective_fits(self) -> "PretrainConfig":
        objective, context = self.objective, self.model.context
        if context == "causal" and not objective.is_autoregressive:
            raise ValueError(
                "model.context=causal is for autoregressive models: set objective.target_share=1 and objective.spans, "
                "objective.infill and objective.holes to 0"
            )
        if objective.fill_in_the_middle and context != "causal":
            raise ValueError("objective.fill_in_the_middle needs model.context=causal")
        num_targets = objective.num_targets(self.segment_tokens)
        if objective.holes and most_holes(self.segment_tokens, num_targets) < MIN_HOLES:
            raise ValueError(
                f"objective.holes needs {2 * MIN_HOLES} predicted tokens and another one in a segment, and there are "
                f"{num_targets} of {self.segment_tokens}: change segment_tokens or objective.target_share"
            )
        return self

    @model_validator(mode="after")
    def _segment_has_positions(self) -> "PretrainConfig":
        positions, extent = self.model.positions, self.objective.extent(self.segment_tokens)
        if isinstance(positions, AbsoluteLearnedPositions) and extent > positions.max_positions:
            gap_tokens = extent - self.segment_tokens
            raise ValueError(
                f"segment_tokens={self.segment_tokens} and gaps of up to {gap_tokens} tokens need {extent} positions, "
                f"more than model.positions.max_positions={positions.max_positions}: use shorter segments, a smaller "
                "objective.max_gap_tokens or more positions"
            )
        return self

    @property
    def max_workers(self) -> int:
        """The wanted number of workers."""
        return self.num_workers if isinstance(self.num_workers, int) else self.num_workers.max

    @property
    def worker_counts(self) -> tuple[int, ...]:
        """The numbers of workers that divide the lanes, the wanted one first."""
        least = self.num_workers if isinstance(self.num_workers, int) else self.num_workers.min
        return tuple(
            count
            for count in range(self.max_workers, least - 1, -1)
            if self.lanes % (count * self.micro_batch_lanes) == 0
            and not (self.deterministic and count & (count - 1))
        )

    @property
    def tokens_per_step(self) -> int:
        """The number of corpus tokens that one optimizer step reads."""
        return self.lanes * self.segment_tokens
