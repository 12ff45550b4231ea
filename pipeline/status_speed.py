"""How fast a run is, in operations, and what share of its GPUs' peak that is."""

from dataclasses import dataclass

from pipeline.status_facts import StatusFacts
from pipeline.status_folder import Shape
from pretrain.plan.utilisation import flops_per_token, gpu_of_device


@dataclass(frozen=True)
class Speed:
    """Of all workers together."""

    flops_per_s: float
    """Operations of the model's forward and backward passes."""
    mfu: float | None
    """Share of the workers' peak in the run's precision; None where no data sheet tells the peak."""


def speed_of(facts: StatusFacts, shape: Shape | None) -> Speed | None:
    """None before the first step, or where the model is not known."""
    if shape is None or facts.tokens_per_s is None:
        return None
    flops_per_s = facts.tokens_per_s * flops_per_token(shape.config, shape.vocab_size)
    gpu = gpu_of_device(facts.device) if facts.device is not None else None
    if gpu is None or not facts.world_size:
        return Speed(flops_per_s, None)
    return Speed(flops_per_s, flops_per_s / (facts.world_size * gpu.peak_flops(shape.config.precision)))
