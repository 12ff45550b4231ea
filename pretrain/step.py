"""One optimizer step, top to bottom."""

import math
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from cluster.errors import UserError
from pretrain.config import PretrainConfig
from pretrain.data.batch import training_batch
from pretrain.data.lanes import LaneReader
from pretrain.engine.build import set_learning_rate
from pretrain.model.memory import SegmentMemory, concatenate
from pretrain.objective import prediction_loss
from pretrain.orders.mixture import OrderMixture
from pretrain.randomness import seed_dropout
from pretrain.schedule import learning_rate


@dataclass
class TrainState:
    """What a worker carries from step to step; `memory` and `step` are all that changes beside the engine."""

    config: PretrainConfig
    seed: int
    engine: Any
    reader: LaneReader
    mixture: OrderMixture
    lanes: range
    """The lanes this worker serves."""
    device: torch.device
    memory: SegmentMemory
    step: int = 0
    """Optimizer steps done, which is also the data cursor."""


def train_step(state: TrainState) -> dict[str, float]:
    """Read one segment of every lane, predict, update the weights and the memory; returns the step's metrics."""
    config, started_s = state.config, time.perf_counter()
    rate = learning_rate(config.schedule, state.step, config.num_steps)
    set_learning_rate(state.engine, rate)
    new_memory, loss_sum = [], torch.zeros((), device=state.device)
    micro_batches = range(0, len(state.lanes), config.micro_batch_lanes)

    for first in micro_batches:
        lanes = state.lanes[first : first + config.micro_batch_lanes]
        batch = training_batch(
            state.reader, state.mixture, state.seed, state.step, lanes, config.model.segment_encodings
        )
        seed_dropout(state.seed, state.step, lanes[0] // config.micro_batch_lanes)
        memory = state.memory.lanes(first, first + len(lanes))
        output = state.engine(batch.tokens_BL, batch.content, batch.targets, memory)
        loss = prediction_loss(output.logits_BPV, batch.wanted_BP)
        state.engine.backward(loss)
        state.engine.step()  # updates the weights after the last micro-batch only
        new_memory.append(output.memory)
        loss_sum += loss.detach() / len(micro_batches)

    dist.all_reduce(loss_sum)
    mean_loss = float(loss_sum) / dist.get_world_size()
    if not math.isfinite(mean_loss):
        raise UserError(
            f"loss is {mean_loss} at step {state.step + 1}: "
            "lower pretrain.schedule.peak_learning_rate and use another --out"
        )
    state.memory = concatenate(new_memory)
    state.step += 1
    return {
        "loss": mean_loss,
        "learning_rate": rate,
        "grad_norm": float(state.engine.get_global_grad_norm()),
        "tokens": float(state.step * config.tokens_per_step),
        "tokens_per_s": config.tokens_per_step / (time.perf_counter() - started_s),
    }
