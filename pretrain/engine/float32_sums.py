"""Sums of bfloat16 gradients in float32, all at once."""

from functools import partial
from typing import Any

import torch


def add_at_once(optimizer: Any) -> None:
    """Let DeepSpeed's bfloat16 optimizer add all gradients to their sums in one call, not one after the other.

    The sums are the same, to the bit. Each gradient is freed: the next one then needs no zeros to be added to.
    """
    optimizer.update_hp_grads = partial(_add, optimizer)


@torch.no_grad()
def _add(optimizer: Any, clear_lp_grads: bool = False) -> None:
    """What `update_hp_grads` does; gradients that were asked to be cleared are freed all the same."""
    for group, sums, has_sum in zip(
        optimizer.bf16_groups,
        optimizer.fp32_groups_gradients,
        optimizer.fp32_groups_has_gradients,
        strict=True,
    ):
        there = [number for number, parameter in enumerate(group) if parameter.grad is not None]
        if not there:
            continue
        torch._foreach_add_([sums[n] for n in there], [group[n].grad.view_as(sums[n]) for n in there])
        for number in there:
            group[number]._hp_grad = sums[number]
            group[number].grad = None
            has_sum[number] = True
