"""Where this worker keeps its part of the masters and moments, whatever DeepSpeed optimizer holds them.

DeepSpeed keeps float32 masters in flat tensors, one per parameter group and worker (ZeRO 1 to 3) or one per
parameter (no ZeRO), under other names in each of its optimizers. This file alone knows them (0.19.8).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Fragment:
    """Elements [start, start + numel) of a parameter, kept at [offset, offset + numel) of a flat master."""

    name: str
    shape: tuple[int, ...]
    """Of the whole parameter."""
    start: int
    numel: int
    master: Tensor
    """What Adam updates and keeps its state by; float32, of any shape."""
    offset: int


def local_fragments(engine: Any, parameters: dict[str, nn.Parameter]) -> list[Fragment]:
    """This worker's fragments, all of a master's one after the other; without ZeRO every worker has all."""
    optimizer = engine.optimizer
    if hasattr(optimizer, "fp32_partitioned_groups_flat"):  # ZeRO 3
        return list(_stage_3(optimizer, parameters))
    if hasattr(optimizer, "single_partition_of_fp32_groups"):  # ZeRO 1 and 2
        return list(_linked(optimizer.single_partition_of_fp32_groups, parameters))
    if hasattr(optimizer, "fp32_groups_flat_partition"):  # ZeRO 1, bfloat16, gradients summed in float32
        return list(_linked(optimizer.fp32_groups_flat_partition, parameters))
    if hasattr(optimizer, "fp32_groups"):  # no ZeRO, bfloat16
        return list(_copies(optimizer.fp16_groups, optimizer.fp32_groups, parameters))
    return [_whole(name, parameter, parameter) for name, parameter in parameters.items()]


def whole_shape(parameter: nn.Parameter) -> torch.Size:
    """A parameter's shape; ZeRO 3 leaves nothing of it in the parameter itself."""
    shape: torch.Size = getattr(parameter, "ds_shape", parameter.shape)
    return shape


def _stage_3(optimizer: Any, parameters: dict[str, nn.Parameter]) -> Iterator[Fragment]:
    for name, parameter in parameters.items():
        shape = whole_shape(parameter)
        group, offset, numel = optimizer.grad_position[optimizer.get_param_id(parameter)]
        start = numel * optimizer._get_param_partition_rank(parameter)
        numel = min(numel, shape.numel() - start)  # the last workers' parts may be padding
        if numel > 0:
            master = optimizer.fp32_partitioned_groups_flat[group]
            yield Fragment(name, tuple(shape), start, numel, master, offset)


def _linked(masters: list[Tensor], parameters: dict[str, nn.Parameter]) -> Iterator[Fragment]:
    for name, parameter in parameters.items():
        mapping = parameter._hp_mapping  # type: ignore[attr-defined]
        if mapping is not None:  # else all of it lies with other workers
            here, there = mapping.lp_fragment_address, mapping.hp_fragment_address
            master = masters[mapping.param_group_index]
            yield Fragment(name, tuple(parameter.shape), here.start, here.numel, master, there.start)


def _copies(
    groups: list[list[nn.Parameter]], copies: list[list[Tensor]], parameters: dict[str, nn.Parameter]
) -> Iterator[Fragment]:
    masters = {
        id(parameter): master
        for group, group_copies in zip(groups, copies, strict=True)
        for parameter, master in zip(group, group_copies, strict=True)
    }
    for name, parameter in parameters.items():
        yield _whole(name, parameter, masters[id(parameter)])


def _whole(name: str, parameter: nn.Parameter, master: Tensor) -> Fragment:
    return Fragment(name, tuple(parameter.shape), 0, parameter.numel(), master, 0)
