"""What an engine must know of a run, whatever is trained."""

from dataclasses import dataclass
from typing import Literal

from pretrain.config import PretrainConfig


@dataclass(frozen=True)
class EngineSettings:
    """How gradients are summed, clipped and applied. An optimizer step is made of equal micro-batches."""

    micro_batches: int
    """Of a step, over all workers."""
    micro_batch_items: int
    """Lanes or examples in one, as DeepSpeed counts them."""
    precision: Literal["bf16", "fp32"]
    zero_stage: Literal[0, 1, 2, 3]
    clip_norm: float
    deterministic: bool = False
    offload_optimizer: bool = False
    offload_parameters: bool = False

    @classmethod
    def of_pretraining(cls, config: PretrainConfig) -> "EngineSettings":
        """Those of a pretraining run."""
        return cls(
            micro_batches=config.lanes // config.micro_batch_lanes,
            micro_batch_items=config.micro_batch_lanes,
            precision=config.precision,
            zero_stage=config.zero_stage,
            clip_norm=config.optimizer.clip_norm,
            deterministic=config.deterministic,
            offload_optimizer=config.offload_optimizer,
            offload_parameters=config.offload_parameters,
        )

    @property
    def deepspeed_clips(self) -> bool:
        """Whether DeepSpeed clips gradients and leaves out updates that are not finite.

        It does so only where it wraps the optimizer: not in float32 without ZeRO.
        """
        return not self.deterministic and (self.zero_stage > 0 or self.precision == "bf16")
