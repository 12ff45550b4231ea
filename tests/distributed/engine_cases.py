"""What is tried with the training engine, and what is seen there; the same code in every rank and in the tests.

Shapes: B lanes, L segment.
"""

import hashlib
import math
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from pretrain.config import PretrainConfig
from pretrain.engine.module_engine import Update
from pretrain.engine.pieces import EnginePieces
from pretrain.engine.training_engine import TrainingEngine
from pretrain.model.loss import prediction_loss
from pretrain.model.transformer import PermutationOutput, TwoStreamTransformer
from pretrain.objective import left_to_right
from pretrain.randomness import seed_dropout
from tests.distributed.workers import small_config

VOCAB = 101
RATE = 3e-3
NUM_STEPS = 4
"""Of which the state is looked at half way."""


@dataclass(frozen=True)
class Case:
    """Settings of a run; dropout is on, gradients are clipped."""

    zero_stage: int
    precision: str = "bf16"
    micro_batch_lanes: int = 2
    offload: bool = False
    layer_decay: float = 1.0
    deterministic: bool = False

    def config(self, world_size: int) -> PretrainConfig:
        return small_config(
            num_workers=world_size,
            lanes=8 if self.deterministic else 4,
            micro_batch_lanes=self.micro_batch_lanes,
            zero_stage=self.zero_stage,
            precision=self.precision,
            offload_optimizer=self.offload,
            offload_parameters=self.offload and self.zero_stage == 3,
            deterministic=self.deterministic,
            optimizer={"layer_decay": self.layer_decay},
        )


@dataclass
class Seen:
    """The measurements of rank 0 in a case; states as SHA-256 of all masters and moments."""

    starts_empty: bool = False
    """Moments are zeros before the first step."""
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    half: str = ""
    after_spoilt: list[str] = field(default_factory=list)
    """States after steps whose loss or gradient was not finite, made half way."""
    spoilt_applied: list[bool] = field(default_factory=list)
    end: str = ""
    weights: list[str] = field(default_factory=list)
    """The weights of every worker at the end, where they have whole ones."""
    masters_agree: bool = False
    """`masters()` gives what the pieces hold."""
    elsewhere: str = ""
    """State of an engine that got the half way state of the case before."""
    restored: str = ""
    continued: str = ""
    """The end again, from the half way state."""
    share_read: float = 0.0
    """Of the moments of the half way state, read for that by rank 0."""


@dataclass(frozen=True)
class WholeState:
    """The pieces of all workers put together: a StateSource."""

    tensors: dict[tuple[str, str], Tensor]
    """By kind ("master" or a moment) and parameter."""
    adam_steps: int
    moments_read: list[int] = field(default_factory=list)
    """Elements, by request."""

    @classmethod
    def of(cls, pieces: list[EnginePieces]) -> "WholeState":
        """AssertionError unless every element is there exactly once."""
        tensors: dict[tuple[str, str], Tensor] = {}
        for worker in pieces:
            for kind, parts in [("master", worker.masters), *worker.moments.items()]:
                for piece in parts:
                    missing = torch.full(piece.shape, torch.nan)
                    whole = tensors.setdefault((kind, piece.name), missing).view(-1)
                    place = slice(piece.start, piece.start + len(piece.values_X))
                    assert len(whole[place]) == len(piece.values_X)
                    assert whole[place].isnan().all(), f"{piece.name} has two values"
                    whole[place] = piece.values_X
        for (kind, name), whole in tensors.items():
            assert not whole.isnan().any(), f"{kind} of {name} is not whole"
        return cls(tensors, max(worker.adam_steps for worker in pieces))

    def master(self, name: str) -> Tensor:
        assert dist.get_rank() == 0, "a whole tensor is read once and sent"
        return self.tensors["master", name]

    def master_part(self, name: str, start: int, stop: int) -> Tensor:
        return self.tensors["master", name].flatten()[start:stop]

    def moment_part(self, kind: str, name: str, start: int, stop: int) -> Tensor:
        self.moments_read.append(stop - start)
        return self.tensors[kind, name].flatten()[start:stop]

    def sha256(self) -> str:
        names = sorted(self.tensors)
        return sha256([self.tensors[name] for name in names]) + f" after {self.adam_steps}"


def sha256(tensors: list[Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().flatten().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def new_model(config: PretrainConfig) -> TwoStreamTransformer:
    torch.manual_seed(0)
    return TwoStreamTransformer(config.model, VOCAB)


def micro_batch_tokens(config: PretrainConfig, step: int, micro_batch: int) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * step + micro_batch)
    return torch.randint(0, VOCAB, (config.micro_batch_lanes, config.segment_tokens), generator=generator)


def micro_batch_loss(
    model: TwoStreamTransformer, forward: object, config: PretrainConfig, step: int, micro_batch: int
) -> tuple[Tensor, PermutationOutput]:
    """Every token predicted from those before it."""
    assert callable(forward)
    tokens_BL = micro_batch_tokens(config, step, micro_batch)
    places = left_to_right(torch.zeros_like(tokens_BL))
    seed_dropout(3, step, micro_batch)
    output = forward(tokens_BL, places, places, model.empty_memory(len(tokens_BL)))
    return prediction_loss(output.logits_BPV, tokens_BL), output


class Rank:
    """One worker with an engine."""

    def __init__(self, case: Case) -> None:
        self.world_size, self.rank = dist.get_world_size(), dist.get_rank()
        self.config = case.config(self.world_size)
        self.engine = TrainingEngine(new_model(self.config), self.config, self.world_size)

    def step(self, step: int, spoilt: str = "") -> tuple[float, Update]:
        """The mean loss of this worker and the update; `spoilt` makes the last micro-batch of all not finite."""
        num_micro_batches = self.config.lanes // self.config.micro_batch_lanes
        mine = num_micro_batches // self.world_size
        loss_sum = 0.0
        for micro_batch in range(self.rank * mine, (self.rank + 1) * mine):
            loss, output = micro_batch_loss(
                self.engine.module, self.engine.forward, self.config, step, micro_batch
            )
            if spoilt == "loss" and micro_batch == num_micro_batches - 1:
                loss = loss + torch.inf
            if spoilt == "gradient" and micro_batch == num_micro_batches - 1:
                loss = loss + (output.logits_BPV.float().sum() * 0).sqrt()  # 0, whose gradient is NaN
            self.engine.accumulate(loss, micro_batch)
            loss_sum += float(loss.detach())
        is_finite = [math.isfinite(loss_sum)]
        gathered = [is_finite] * self.world_size
        dist.all_gather_object(gathered, is_finite)
        return loss_sum / mine, self.engine.update(RATE, torch.tensor(all(one for (one,) in gathered)))

    def state(self) -> WholeState:
        """Collective."""
        pieces: list[EnginePieces | None] = [None] * self.world_size
        dist.all_gather_object(pieces, self.engine.pieces())
        return WholeState.of([worker for worker in pieces if worker is not None])

    def weights(self) -> list[str]:
        """SHA-256 of the weights every worker computes with. Collective."""
        if self.config.zero_stage == 3:  # whole in forward passes only
            return []
        weights = [""] * self.world_size
        dist.all_gather_object(weights, sha256(list(self.engine.module.parameters())))
        return weights


def try_case(case: Case, before: WholeState | None) -> tuple[Seen, WholeState]:
    """Train with spoilt steps in between, then again from half way; `before` is another case's half way state."""
    seen, rank = Seen(), Rank(case)
    seen.starts_empty = _starts_empty(rank.state())
    _train(rank, range(NUM_STEPS // 2), seen)
    half = rank.state()
    seen.half = half.sha256()
    for spoilt in ("loss", "gradient"):
        seen.spoilt_applied.append(bool(rank.step(NUM_STEPS, spoilt)[1].is_applied))
        seen.after_spoilt.append(rank.state().sha256())
    _train(rank, range(NUM_STEPS // 2, NUM_STEPS), seen)
    end, masters = rank.state(), rank.engine.masters()
    seen.end, seen.weights = end.sha256(), rank.weights()
    seen.masters_agree = all(
        torch.equal(end.tensors["master", name], whole) for name, whole in masters.items()
    )
    rank.engine.close()

    rank = Rank(case)
    if before:
        rank.engine.restore(before)
        seen.elsewhere = rank.state().sha256()
    rank.engine.restore(half)
    all_moments = sum(whole.numel() for (kind, _), whole in half.tensors.items() if kind != "master")
    seen.share_read = sum(half.moments_read) / all_moments
    seen.restored = rank.state().sha256()
    _train(rank, range(NUM_STEPS // 2, NUM_STEPS), Seen())
    seen.continued = rank.state().sha256()
    rank.engine.close()
    return seen, half


def _train(rank: Rank, steps: range, seen: Seen) -> None:
    for step in steps:
        loss, update = rank.step(step)
        assert update.is_applied
        seen.losses.append(loss)
        seen.norms.append(float(update.grad_norm))


def _starts_empty(state: WholeState) -> bool:
    moments = [tensor for (kind, _), tensor in state.tensors.items() if kind != "master"]
    return state.adam_steps == 0 and not any(tensor.any() for tensor in moments)
