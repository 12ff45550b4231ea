"""Reading and writing the masters and moments of this worker as pieces of named parameters.

DeepSpeed keeps float32 masters in flat tensors, one per parameter group and worker (ZeRO 1 to 3) or one per
parameter (no ZeRO), under other names in each of its optimizers. Only this file knows these names (DeepSpeed 0.19.8).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pretrain.engine.pieces import MOMENTS, EnginePieces, Piece, StateSource


@dataclass(frozen=True)
class Fragment:
    """Elements [start, start + numel) of a parameter, stored at [offset, offset + numel) of a flat master."""

    name: str
    shape: tuple[int, ...]
    """Of the whole parameter."""
    start: int
    numel: int
    master: Tensor
    """The tensor that Adam updates, and the key of its state; float32, of any shape."""
    offset: int


def local_fragments(engine: Any, parameters: dict[str, nn.Parameter]) -> list[Fragment]:
    """Return this worker's fragments, those of a master in a row; without ZeRO every worker has all."""
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
    """Return a parameter's shape; under ZeRO 3 the parameter itself is empty."""
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
        if mapping is not None:  # else other workers have all of it
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


def local_pieces(
    engine: Any, parameters: dict[str, nn.Parameter], rank: int, world_size: int
) -> EnginePieces:
    """Copy this worker's part of a checkpoint to CPU memory; no communication."""
    fragments, adam = local_fragments(engine, parameters), base_optimizer(engine)
    if engine.zero_optimization_stage() == 0:
        fragments = _share_of_rank(fragments, rank, world_size)
    masters = _distinct_masters(fragments)
    states = {key: adam.state.get(master) or {} for key, master in masters.items()}
    moments = {kind: {key: state.get(kind) for key, state in states.items()} for kind in MOMENTS}
    return EnginePieces(
        _pieces(fragments, masters),
        {kind: _pieces(fragments, tensors) for kind, tensors in moments.items()},
        max((int(state["step"]) for state in states.values() if "step" in state), default=0),
    )


def restore_state(engine: Any, parameters: dict[str, nn.Parameter], source: StateSource) -> None:
    """Restore the state in `source` into an engine that has made no step; every worker must call it.

    A worker reads its own fragments. Whole tensors are read by the first worker and sent to the others, which would
    open as many files as there are workers.
    """
    fragments, adam = local_fragments(engine, parameters), base_optimizer(engine)
    all_have_all = engine.zero_optimization_stage() == 0
    here = {fragment.name: fragment for fragment in fragments}
    for master in _distinct_masters(fragments).values():
        # Adam's state as torch makes it at the first step.
        device = master.device if adam.defaults["fused"] else torch.device("cpu")
        step = torch.tensor(float(source.adam_steps), dtype=torch.float32, device=device)
        zeros = {kind: torch.zeros_like(master, requires_grad=False) for kind in MOMENTS}
        adam.state[master] = {"step": step, **zeros}
    with torch.no_grad():
        for name, parameter in parameters.items():
            shape = whole_shape(parameter)
            if parameter.numel() == shape.numel():  # with ZeRO 3 only a few
                whole = _from_first(partial(source.master, name), shape, parameter.device)
                parameter.copy_(whole)
            if name not in here:
                continue
            fragment = here[name]
            start, stop = fragment.start, fragment.start + fragment.numel
            read = whole.flatten() if all_have_all else source.master_part(name, start, stop)
            _put(fragment, fragment.master, read)
            for kind in MOMENTS:
                part = partial(source.moment_part, kind, name, start, stop)
                moment_X = _from_first(part, shape, parameter.device).flatten() if all_have_all else part()
                _put(fragment, adam.state[fragment.master][kind], moment_X)
    if engine.zero_optimization_stage() == 3:
        for group in range(len(engine.optimizer.fp16_groups)):
            engine.optimizer._reassign_or_swap_out_partitioned_parameters(group)


def _from_first(read: Callable[[], Tensor], shape: torch.Size, device: torch.device) -> Tensor:
    """Return in every worker the float32 tensor that `read` returns in the first one; collective."""
    if dist.get_rank() == 0:
        tensor = read().to(device).view(shape).contiguous()
    else:
        tensor = torch.empty(shape, dtype=torch.float32, device=device)
    dist.broadcast(tensor, 0)
    return tensor


def forget_first_step(engine: Any) -> None:
    """Undo the step with zero gradients that DeepSpeed's optimizer without ZeRO makes when it is built."""
    for state in base_optimizer(engine).state.values():
        for value in state.values():
            value.zero_()


def drop_gradients(engine: Any) -> None:
    """Drop the gradient sums of a step that was not applied: ZeRO 1 and 2 keep them if the optimizer is offloaded."""
    sums = getattr(engine.optimizer, "averaged_gradients", {})
    for group in sums:
        sums[group] = None


def base_optimizer(engine: Any) -> torch.optim.Optimizer:
    """Return torch's optimizer below DeepSpeed's wrapper."""
    base: torch.optim.Optimizer = getattr(engine.optimizer, "optimizer", engine.optimizer)
    return base


def _distinct_masters(fragments: Iterable[Fragment]) -> dict[int, Tensor]:
    return {id(fragment.master): fragment.master for fragment in fragments}


def _share_of_rank(fragments: list[Fragment], rank: int, world_size: int) -> list[Fragment]:
    """Return the share of `rank` of fragments that every worker has: equal numbers of elements, in order."""
    total = sum(fragment.numel for fragment in fragments)
    first, last = total * rank // world_size, total * (rank + 1) // world_size
    dealt, position = [], 0
    for fragment in fragments:
        start = max(first - position, 0)
        stop = min(last - position, fragment.numel)
        if start < stop:
            offset = fragment.offset + start
            dealt.append(replace(fragment, start=fragment.start + start, numel=stop - start, offset=offset))
        position += fragment.numel
    return dealt


def _pieces(fragments: list[Fragment], tensors: Mapping[int, Tensor | None]) -> tuple[Piece, ...]:
    """Return pieces of copies of `tensors`, one tensor per distinct master; zeros if it is None."""
    copies = {
        key: None if tensor is None else tensor.detach().to("cpu", copy=True).flatten()
        for key, tensor in tensors.items()
    }
    pieces = []
    for fragment in fragments:
        copy_X = copies[id(fragment.master)]
        if copy_X is None:
            values_X = torch.zeros(fragment.numel)
        else:
            values_X = copy_X[fragment.offset : fragment.offset + fragment.numel]
        pieces.append(Piece(fragment.name, fragment.shape, fragment.start, values_X))
    return tuple(pieces)


def _put(fragment: Fragment, tensor: Tensor, values_X: Tensor) -> None:
    """Write the fragment's elements into its range of `tensor`."""
    tensor.view(-1)[fragment.offset : fragment.offset + fragment.numel].copy_(values_X)
