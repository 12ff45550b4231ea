"""One rank of an engine, maybe with a GPU's settings, that notes when gradients are exchanged.

In a process that the fork server started.
"""

import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from cluster.process_group import configure_environment, join_process_group
from pretrain.engine import module_engine
from pretrain.engine.training_engine import TrainingEngine
from tests.distributed.engine_cases import RATE, micro_batch_loss, new_model
from tests.distributed.workers import small_config

_EXCHANGES = ("allreduce", "reduce_scatter", "alltoall", "reduce_")
NUM_LAYERS = 6


class _Exchanges(TorchDispatchMode):
    """Notes the collectives that add gradients up."""

    def __init__(self, order: list[str]) -> None:
        super().__init__()
        self._order = order

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func._schema.name
        if name.startswith("c10d::") and any(exchange in name for exchange in _EXCHANGES):
            self._order.append("exchange")
        return func(*args, **(kwargs or {}))


def main(given: dict[str, Any]) -> None:
    """Leave `order.json` in the given folder: of each case and micro-batch, layers and exchanges as they came."""
    configure_environment("gloo")
    torch.set_num_threads(1)
    join_process_group("gloo")
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    described = module_engine.deepspeed_config
    if given["on_gpu"]:
        module_engine.deepspeed_config = lambda *settings: described(*settings[:-1], on_gpu=True)
    orders = [_orders(case) for case in given["cases"]]
    if dist.get_rank() == 0:
        (Path(given["folder"]) / "order.json").write_text(json.dumps(orders))
    dist.destroy_process_group()


def _orders(case: dict[str, Any]) -> list[list[str]]:
    model = small_config().model.model_dump() | {"num_layers": NUM_LAYERS}
    config = small_config(model=model, lanes=8, **case)
    engine = TrainingEngine(new_model(config), config, dist.get_world_size())
    orders: list[list[str]] = []
    for number, block in enumerate(engine.module.blocks):
        block.register_full_backward_hook(
            partial(lambda layer, *_: orders[-1].append(layer), f"layer {number}")
        )
    mine = config.lanes // config.micro_batch_lanes // dist.get_world_size()
    for step in range(2):  # ZeRO 3 learns the order of the modules in the first
        for micro_batch in range(dist.get_rank() * mine, (dist.get_rank() + 1) * mine):
            orders.append([])
            loss, _ = micro_batch_loss(engine.module, engine.forward, config, step, micro_batch)
            with _Exchanges(orders[-1]):
                engine.accumulate(loss, micro_batch)
        engine.update(RATE)
    engine.close()
    return orders[-mine:]
