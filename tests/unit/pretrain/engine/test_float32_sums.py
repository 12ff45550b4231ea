"""Float32 sums of bfloat16 gradients against sums written down one by one."""

from types import SimpleNamespace

import torch
from torch import nn

from pretrain.engine.float32_sums import add_with_few_passes

SHAPES = ((3, 4), (5,), (2, 2))


def optimizer_of_two_groups() -> SimpleNamespace:
    """As much of DeepSpeed's bfloat16 optimizer as the sums are made of."""
    parameters = [nn.Parameter(torch.zeros(shape, dtype=torch.bfloat16)) for shape in SHAPES]
    groups = [parameters[:2], parameters[2:]]
    flats = [torch.zeros(sum(one.numel() for one in group)) for group in groups]
    made = SimpleNamespace(
        bf16_groups=groups,
        fp32_groups_gradients_flat=flats,
        fp32_groups_gradients=[
            list(flat.split([one.numel() for one in group]))
            for flat, group in zip(flats, groups, strict=True)
        ],
        fp32_groups_has_gradients=[[False] * len(group) for group in groups],
    )
    add_with_few_passes(made)
    return made


def test_the_sums_of_every_step_are_those_of_its_own_gradients() -> None:
    optimizer = optimizer_of_two_groups()
    parameters = [one for group in optimizer.bf16_groups for one in group]
    generator = torch.Generator().manual_seed(0)
    # By step and micro-batch: which parameters get a gradient.
    for step in (((0, 1, 2), (0, 1, 2)), ((0,), (0, 2)), ((1,),), (), ((0, 1, 2), (1,))):
        wanted = [torch.zeros(one.numel()) for one in parameters]
        for there in step:
            for number in there:
                gradient = torch.randn(SHAPES[number], generator=generator).bfloat16()
                parameters[number].grad = gradient
                wanted[number] += gradient.float().flatten()
            optimizer.update_hp_grads()
            assert all(one.grad is None for one in parameters)

        sums = [one for group in optimizer.fp32_groups_gradients for one in group]
        assert all(torch.equal(one, other) for one, other in zip(sums, wanted, strict=True))
        flags = [one for group in optimizer.fp32_groups_has_gradients for one in group]
        assert flags == [any(number in there for there in step) for number in range(len(SHAPES))]

        optimizer.clear_hp_grads()
        optimizer.clear_hp_grads()
        assert not any(flat.any() for flat in optimizer.fp32_groups_gradients_flat)
        assert not any(flag for group in optimizer.fp32_groups_has_gradients for flag in group)
