"""The fixed sum of a step's gradients, in one process; tests/distributed/test_engine.py has more of them."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from pretrain.engine.deterministic_sum import DeterministicSum, SummedGradient

NO_CLIPPING = 1e30


@pytest.fixture(autouse=True)
def _one_worker() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def parameters() -> list[Tensor]:
    return [torch.zeros(3, 5, requires_grad=True), torch.zeros(7, requires_grad=True)]


def gradients(number: int) -> list[Tensor]:
    """Of such different sizes that each order of summing rounds differently."""
    generator = torch.Generator().manual_seed(number)
    return [
        torch.randn(shape, generator=generator) * 10.0 ** torch.randint(-6, 6, shape, generator=generator)
        for shape in ((3, 5), (7,))
    ]


def summed(micro_batches: list[list[Tensor]], clip_norm: float = NO_CLIPPING) -> list[Tensor]:
    weights = parameters()
    tree = DeterministicSum(weights, len(micro_batches))
    return tree.views(take(tree, weights, micro_batches, clip_norm).part_X)


def take(
    tree: DeterministicSum, weights: list[Tensor], micro_batches: list[list[Tensor]], clip_norm: float
) -> SummedGradient:
    for number, wanted in enumerate(micro_batches):
        loss = sum((weight * gradient).sum() for weight, gradient in zip(weights, wanted, strict=True))
        assert isinstance(loss, Tensor)
        tree.add(loss, number)
    return tree.take(clip_norm)


def test_the_sum_is_the_binary_tree_over_micro_batches() -> None:
    all_gradients = [gradients(number) for number in range(8)]
    for part, got in enumerate(summed(all_gradients)):
        g = [micro_batch[part] for micro_batch in all_gradients]
        tree = ((g[0] + g[1]) + (g[2] + g[3])) + ((g[4] + g[5]) + (g[6] + g[7]))
        assert torch.equal(got, tree / 8)
        assert not torch.equal(got, torch.stack(g).sum(0) / 8)


def test_a_parameter_without_a_gradient_gets_zeros() -> None:
    weights = parameters()
    tree = DeterministicSum(weights, 1)
    tree.add(weights[0].sum(), 0)
    assert torch.equal(tree.views(tree.take(NO_CLIPPING).part_X)[1], torch.zeros(7))


def test_the_norm_is_the_whole_gradients_and_clipping_brings_it_down() -> None:
    weights, micro_batches = parameters(), [gradients(0), gradients(1)]
    mean = [(first + second) / 2 for first, second in zip(*micro_batches, strict=True)]
    norm = float(torch.cat([part.flatten().double() for part in mean]).norm())
    gradient = take(DeterministicSum(weights, 2), weights, micro_batches, clip_norm=0.5)
    assert gradient.norm == pytest.approx(norm, rel=1e-6)
    assert float(gradient.part_X.norm()) == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize("spoiler", [torch.nan, torch.inf])
def test_the_norm_tells_of_one_bad_element(spoiler: float) -> None:
    weights, spoilt = parameters(), gradients(1)
    spoilt[1][4] = spoiler
    gradient = take(DeterministicSum(weights, 2), weights, [gradients(0), spoilt], NO_CLIPPING)
    assert not torch.isfinite(torch.tensor(gradient.norm))


def test_a_missing_micro_batch_is_no_sum() -> None:
    weights = parameters()
    tree = DeterministicSum(weights, 4)
    for number in (0, 1, 3):
        tree.add(weights[0].sum(), number)
    with pytest.raises(ValueError, match="too many values"):
        tree.take(NO_CLIPPING)


def test_it_can_be_used_step_after_step() -> None:
    weights = parameters()
    tree = DeterministicSum(weights, 2)
    first = take(tree, weights, [gradients(0), gradients(1)], NO_CLIPPING)
    take(tree, weights, [gradients(2), gradients(3)], NO_CLIPPING)
    again = take(tree, weights, [gradients(0), gradients(1)], NO_CLIPPING)
    assert torch.equal(first.part_X, again.part_X)
