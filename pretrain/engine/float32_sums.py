"""Sums of bfloat16 gradients in float32, all at once."""

from typing import Any

import torch


class Float32Sums:
    """Takes the place of `update_hp_grads` of DeepSpeed's bfloat16 optimizer, which adds one parameter after the other.

    The sums are the same, to the bit.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        optimizer.update_hp_grads = self

    @torch.no_grad()
    def __call__(self, clear_lp_grads: bool = False) -> None:
        """Add every gradient to its sum, and free it: the next one then needs no zeros to be added to."""
        optimizer = self._optimizer
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
