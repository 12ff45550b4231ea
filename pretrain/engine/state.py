"""Reading and writing this worker's masters and moments, as pieces of named parameters."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from pretrain.engine.fragments import Fragment, local_fragments, whole_shape
from pretrain.engine.pieces import MOMENTS, EnginePieces, Piece, StateSource


def local_pieces(
    engine: Any, parameters: dict[str, nn.Parameter], rank: int, world_size: int
) -> EnginePieces:
    """Copies of what this worker has to give to a commit; no communication."""
    fragments, adam = local_fragments(engine, parameters), base_optimizer(engine)
    if engine.zero_optimization_stage() == 0:
        fragments = _dealt(fragments, rank, world_size)
    masters = _distinct_masters(fragments)
    states = {key: adam.state.get(master) or {} for key, master in masters.items()}
    moments = {kind: {key: state.get(kind) for key, state in states.items()} for kind in MOMENTS}
    return EnginePieces(
        _pieces(fragments, masters),
        {kind: _pieces(fragments, tensors) for kind, tensors in moments.items()},
        max((int(state["step"]) for state in states.values() if "step" in state), default=0),
    )


def restore_state(engine: Any, parameters: dict[str, nn.Parameter], source: StateSource) -> None:
    """Put `source` into an engine that has made no step; every worker must call it.

    A worker asks for its own fragments, and for whole parameters where it has these between steps.
    """
    fragments, adam = local_fragments(engine, parameters), base_optimizer(engine)
    here = {fragment.name: fragment for fragment in fragments}
    for master in _distinct_masters(fragments).values():
        adam.state[master] = _fresh_state(adam, master, source.adam_steps)
    with torch.no_grad():
        for name, parameter in parameters.items():
            if name in here:
                fragment = here[name]
                start, stop = fragment.start, fragment.start + fragment.numel
                _put(fragment, fragment.master, source.master_part(name, start, stop))
                for kind in MOMENTS:
                    moment_X = source.moment_part(kind, name, start, stop)
                    _put(fragment, adam.state[fragment.master][kind], moment_X)
            if parameter.numel() == whole_shape(parameter).numel():  # with ZeRO 3 that is so for few
                parameter.copy_(source.master(name))
    if engine.zero_optimization_stage() == 3:
        for group in range(len(engine.optimizer.fp16_groups)):
            engine.optimizer._reassign_or_swap_out_partitioned_parameters(group)


def forget_first_step(engine: Any) -> None:
    """Undo what DeepSpeed's optimizer without ZeRO does to Adam when it is built: a step with zero gradients."""
    for state in base_optimizer(engine).state.values():
        for value in state.values():
            value.zero_()


def drop_gradients(engine: Any) -> None:
    """Forget the sums of a step that was not applied: ZeRO 1 and 2 keep them where the optimizer is offloaded."""
    sums = getattr(engine.optimizer, "averaged_gradients", {})
    for group in sums:
        sums[group] = None


def base_optimizer(engine: Any) -> torch.optim.Optimizer:
    """Torch's own optimizer below DeepSpeed's wrapper."""
    base: torch.optim.Optimizer = getattr(engine.optimizer, "optimizer", engine.optimizer)
    return base


def _fresh_state(adam: torch.optim.Optimizer, master: Tensor, steps: int) -> dict[str, Tensor]:
    """Adam's state as torch makes it at the first step."""
    device = master.device if adam.defaults["fused"] else torch.device("cpu")
    step = torch.tensor(float(steps), dtype=torch.float32, device=device)
    return {"step": step, **{kind: torch.zeros_like(master, requires_grad=False) for kind in MOMENTS}}


def _distinct_masters(fragments: Iterable[Fragment]) -> dict[int, Tensor]:
    return {id(fragment.master): fragment.master for fragment in fragments}


def _dealt(fragments: list[Fragment], rank: int, world_size: int) -> list[Fragment]:
    """Of fragments that every worker has, the share of `rank`: equal counts of elements, in order."""
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
    """Pieces cut from copies of `tensors`, one per distinct master; zeros where there is none yet."""
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
    """Write the fragment's elements where `tensor` keeps them."""
    tensor.view(-1)[fragment.offset : fragment.offset + fragment.numel].copy_(values_X)
