"""One optimizer step, top to bottom."""

import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from cluster.fault_points import fault_point
from pretrain.config import PretrainConfig
from pretrain.data.batch import ordered_batch
from pretrain.data.feed import LaneFeed
from pretrain.data.lanes import LaneReader
from pretrain.engine.training_engine import TrainingEngine
from pretrain.health.rewinds import Rewinds
from pretrain.health.spikes import SpikeDetector
from pretrain.health.watchdog import Watchdog
from pretrain.model.memory import SegmentMemory, concatenate
from pretrain.objective import prediction_loss
from pretrain.orders.mixture import OrderMixture
from pretrain.randomness import seed_dropout
from pretrain.schedule import learning_rate


@dataclass
class TrainState:
    """What a worker carries from step to step."""

    config: PretrainConfig
    seed: int
    engine: TrainingEngine
    reader: LaneReader
    mixture: OrderMixture
    lanes: range
    """The lanes this worker serves."""
    device: torch.device
    memory: SegmentMemory
    """Of those lanes."""
    spikes: SpikeDetector
    feed: LaneFeed = field(init=False)
    """Made when the cursor is known: it begins to read at once."""
    rewinds: Rewinds = Rewinds()
    step: int = 0
    """Optimizer steps done."""
    cursor: int = 0
    """The data step to read next: `step`, and one more for every data step that a rewind passed over."""
    cursors: dict[int, int] = field(default_factory=dict)
    """Of the last step and of all that a spike may come to cover, by number (from 1): what it is traced back to."""
    skipped: "list[StepResult]" = field(default_factory=list)
    """The steps directly before the next one that were not applied; no commit is made while there are any."""


@dataclass(frozen=True)
class StepResult:
    """What came of one step, the same on every worker but for its own times."""

    step: int
    """Counted from 1."""
    cursor: int
    loss: float
    grad_norm: float
    learning_rate: float
    applied: bool
    """Whether loss and gradient were finite; otherwise nothing but `step` and `cursor` changed."""
    digest: int
    """Of the tokens all lanes read; see `LaneBatch`."""
    stop_asked: bool
    step_s: float
    data_s: float
    own_s: float
    """This worker's time before it first waited for another."""


def train_step(state: TrainState, stop_asked: bool, watchdog: Watchdog) -> StepResult:
    """Read one segment of every lane, predict, update the weights and the memory."""
    config, engine, cursor = state.config, state.engine, state.cursor
    rate = learning_rate(config.schedule, state.step, config.num_steps)
    watchdog.at(state.step, "read")
    started_s = time.perf_counter()
    segments = state.feed.take(cursor)
    ordered_s = time.perf_counter()
    batches = ordered_batch(segments, state.mixture, state.seed, config.model.segment_encodings)
    own_s, losses, memories = segments.wait_s + time.perf_counter() - ordered_s, [], []

    for first in range(0, len(state.lanes), config.micro_batch_lanes):
        forward_s = time.perf_counter()
        watchdog.at(state.step, "forward", first)
        lanes = state.lanes[first : first + config.micro_batch_lanes]
        batch = batches.part(first, first + len(lanes))
        micro_batch = lanes[0] // config.micro_batch_lanes
        seed_dropout(state.seed, cursor, micro_batch)
        memory = state.memory.lanes(first, first + len(lanes))
        output = engine.forward(batch.tokens_BL, batch.content, batch.targets, memory)
        loss = prediction_loss(output.logits_BPV, batch.wanted_BP)
        own_s += time.perf_counter() - forward_s
        watchdog.at(state.step, "backward", first)
        engine.accumulate(loss, micro_batch)
        losses.append(loss.detach())
        memories.append(output.memory)

    fault_point("step.computed")
    watchdog.at(state.step, "exchange")
    update = engine.update(rate)
    fault_point("step.updated")
    loss_mean, digest, stops = _exchange(state, [torch.stack(losses).mean(), segments.digest, stop_asked])
    fault_point("step.exchanged")
    if update.applied:
        state.memory = concatenate(memories)
    state.step += 1
    state.cursors = {step: old for step, old in state.cursors.items() if state.spikes.covers(step)}
    state.cursors[state.step] = cursor
    state.cursor = state.rewinds.next_cursor(cursor)
    return StepResult(
        step=state.step,
        cursor=cursor,
        loss=loss_mean / dist.get_world_size(),
        grad_norm=update.grad_norm,
        learning_rate=rate,
        applied=update.applied,
        digest=round(digest),
        stop_asked=stops > 0,
        step_s=time.perf_counter() - started_s,
        data_s=segments.wait_s,
        own_s=own_s,
    )


def _exchange(state: TrainState, mine: list[torch.Tensor | int | bool]) -> list[float]:
    """The sums of these numbers over all workers; float64 holds the digests' sum exactly."""
    sums = torch.stack([torch.as_tensor(value, dtype=torch.float64, device=state.device) for value in mine])
    dist.all_reduce(sums)
    return [float(value) for value in sums.tolist()]
