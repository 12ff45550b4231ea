"""Whether a run fits a GPU, and the smallest change with which it does."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from pretrain.config import PretrainConfig
from pretrain.plan.memory import gpu_memory

_FAIR_SHARE = 4
"""Micro-batches down to a fourth still fill a GPU; below that computing activations again is the better bargain."""


@dataclass(frozen=True)
class Change:
    """Keys of the pretraining config with the values that make a run fit, and what it then needs."""

    values: dict[str, Any]
    needed_bytes: int


def needed_bytes(config: PretrainConfig, vocab_size: int) -> int:
    """What the run as configured needs on each GPU."""
    return gpu_memory(config, vocab_size, config.zero_stage).total


def smallest_change(config: PretrainConfig, vocab_size: int, available_bytes: int) -> Change | None:
    """The first that fits, from what costs nothing to what costs time; None where nothing helps on this GPU.

    Only changes that the config takes count: a deterministic run, say, does not take every micro batch.
    """
    for values in _changes(config):
        changed = _changed(config, values)
        if changed is not None and (needed := needed_bytes(changed, vocab_size)) <= available_bytes:
            return Change(values, needed)
    return None


def _changed(config: PretrainConfig, values: dict[str, Any]) -> PretrainConfig | None:
    """None where the config refuses the values."""
    try:
        return PretrainConfig.model_validate({**config.model_dump(), **values})
    except ValidationError:
        return None


def _changes(config: PretrainConfig) -> Iterator[dict[str, Any]]:
    stage: dict[str, Any] = {"zero_stage": 2} if config.zero_stage < 2 and config.num_workers > 1 else {}
    if stage:
        yield stage
    smaller = _smaller_micro_batches(config)
    for lanes in smaller:
        if lanes * _FAIR_SHARE >= config.micro_batch_lanes:
            yield {**stage, "micro_batch_lanes": lanes}
    again: dict[str, Any] = {} if config.activation_checkpointing else {"activation_checkpointing": True}
    if again:
        yield {**stage, **again}
    for lanes in smaller:
        yield {**stage, **again, "micro_batch_lanes": lanes}


def _smaller_micro_batches(config: PretrainConfig) -> list[int]:
    per_gpu = config.lanes // config.num_workers
    return [lanes for lanes in range(config.micro_batch_lanes - 1, 0, -1) if per_gpu % lanes == 0]
