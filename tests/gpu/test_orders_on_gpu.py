"""Orders made on a GPU are those of the CPU, bit for bit, and making them never waits for the GPU."""

import pytest
import torch

from pretrain.orders.config import ObjectiveConfig
from pretrain.orders.order import Orders
from pretrain.orders.sampling import OrderMixture
from pretrain.orders.words import WordPieces

VOCABULARY, LANES, STEPS = 1000, 16, 20

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature"),
]


def mixture_on(device: torch.device, length: int, order_in_spans: str, share: float) -> OrderMixture:
    generator = torch.Generator().manual_seed(0)
    first_V, last_V = (torch.rand(2, VOCABULARY, generator=generator) < 0.7).to(device).unbind()
    config = ObjectiveConfig.model_validate({"target_share": share, "order_in_spans": order_in_spans})
    return OrderMixture(config, length, WordPieces(first_V, last_V), device)


def parts(orders: Orders) -> list[torch.Tensor]:
    return [orders.position_BL, orders.rank_BL, orders.target_BP, orders.ends_hole_BP]


@pytest.mark.parametrize("order_in_spans", ["random", "left_to_right"])
@pytest.mark.parametrize(("length", "share"), [(64, 0.75), (512, 1 / 6), (2048, 1.0)])
def test_orders_are_the_cpus_bit_for_bit(order_in_spans: str, length: int, share: float) -> None:
    generator = torch.Generator().manual_seed(1)
    tokens_BL = torch.randint(VOCABULARY, (LANES, length), generator=generator)
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    mixtures = {device: mixture_on(device, length, order_in_spans, share) for device in (cpu, gpu)}
    for step in range(STEPS):
        expected, found = (
            parts(mixtures[device].orders(tokens_BL.to(device), 3, step, range(LANES)))
            for device in (cpu, gpu)
        )
        for expected_part, found_part in zip(expected, found, strict=True):
            assert found_part.is_cuda
            assert torch.equal(expected_part, found_part.cpu())


def test_making_orders_does_not_wait_for_the_gpu() -> None:
    device = torch.device("cuda")
    mixture = mixture_on(device, 512, "random", 0.5)
    tokens_BL = torch.zeros(LANES, 512, dtype=torch.int64, device=device)
    mixture.orders(tokens_BL, 0, 0, range(LANES))
    torch.cuda.set_sync_debug_mode("error")
    try:
        mixture.orders(tokens_BL, 0, 1, range(LANES))
    finally:
        torch.cuda.set_sync_debug_mode("default")
