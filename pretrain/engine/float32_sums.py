"""Sums of bfloat16 gradients in float32 with fewer passes over memory than DeepSpeed's."""

from functools import partial
from typing import Any

import torch


def add_with_few_passes(optimizer: Any) -> None:
    """Let DeepSpeed's bfloat16 optimizer copy a step's first gradients instead of adding them to zeros, and zero its
    sums once a step instead of twice.

    The sums are the same. Each gradient is freed: the next one then needs no zeros to be added to.
    """
    optimizer.update_hp_grads = partial(_add, optimizer)
    optimizer.clear_hp_grads = partial(_clear, optimizer)


@torch.no_grad()
def _add(optimizer: Any, clear_lp_grads: bool = False) -> None:
    """Replace `update_hp_grads`; gradients are freed even where they should only be cleared."""
    for group, sums, has_sum in zip(
        optimizer.bf16_groups,
        optimizer.fp32_groups_gradients,
        optimizer.fp32_groups_has_gradients,
        strict=True,
    ):
        there = [number for number, parameter in enumerate(group) if parameter.grad is not None]
        first = [number for number in there if not has_sum[number]]
        if first:
            torch._foreach_copy_([sums[n] for n in first], [group[n].grad.view_as(sums[n]) for n in first])
        for number in there:
            if has_sum[number]:  # on CPUs twice as fast as all of them in one call
                sums[number].add_(group[number].grad.view_as(sums[number]))
            group[number]._hp_grad = sums[number]
            group[number].grad = None
            has_sum[number] = True


@torch.no_grad()
def _clear(optimizer: Any) -> None:
    """Replace `clear_hp_grads`; only groups that were added to are cleared."""
    for group, (flat, has_sum) in enumerate(
        zip(optimizer.fp32_groups_gradients_flat, optimizer.fp32_groups_has_gradients, strict=True)
    ):
        if any(has_sum):
            flat.zero_()
            optimizer.fp32_groups_has_gradients[group] = [False] * len(has_sum)
