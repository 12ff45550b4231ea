"""The only use of DeepSpeed: backward pass, update and state of any module that is trained.

Used of DeepSpeed: the spreading of weights, gradients and moments over workers (ZeRO 1 to 3), offloading, bfloat16
weights with float32 masters, gradient accumulation over micro-batches, and with offloading its clipping and its refusal
of gradients that are not finite.

Not used, and why:

- Its checkpoints: they are bound to a ZeRO stage and a number of workers and are not atomic; `pieces` and `restore`
  read and write the optimizer's own tensors (`state.py`), `pretrain.checkpoint` makes them a checkpoint.
- Its clipping and its refusals without offloading: the host reads the norm for them; `device_update.py` does not.
- Its accumulation and reduction with `deterministic`: their order depends on the number of workers;
  `deterministic_sum.py` sums in a fixed one, and DeepSpeed gets the finished gradient.
- Its learning-rate schedules, data loading and loss scaling: `Trainer.train_step` sets the rate and checks the loss.
- Its timer of throughput, which makes the host wait for the GPU in every forward pass.

Exchange of gradients on a GPU (`overlap_comm`), as read in DeepSpeed 0.19.8 and seen in `tests/distributed`: ZeRO 2 and
3 exchange every micro-batch's gradients, ZeRO 1 the sum in the last micro-batch's backward pass, by hooks that start as
soon as a bucket is full, on a stream of their own; so the buckets must be smaller than the model. Two cases exchange
only after the backward pass: no ZeRO, and ZeRO 1 with bfloat16 gradients that are added up in float32
(`BF16_Optimizer`), which has no such hooks.

Waits of the host for a GPU: without offloading and deterministic sums, ZeRO 0 to 2 have none (`device_update.py`,
`stream_waits.py`). ZeRO 3 waits after each backward pass, after the update, and to bound the weights in memory.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pretrain.engine.deepspeed_config import EngineSettings, deepspeed_config
from pretrain.engine.deterministic_sum import DeterministicSum, SummedGradient, backward_with
from pretrain.engine.device_update import DeviceUpdate
from pretrain.engine.float32_sums import add_with_few_passes
from pretrain.engine.optimizer import set_learning_rate
from pretrain.engine.pieces import EnginePieces, Piece, StateSource
from pretrain.engine.state import (
    base_optimizer,
    drop_gradients,
    forget_first_step,
    local_pieces,
    restore_state,
    whole_shape,
)
from pretrain.engine.stream_waits import exchanges_on_own_stream, order_streams_without_host


@dataclass(frozen=True)
class Update:
    """The result of an optimizer step, the same on every worker: scalar tensors on the device of the weights.

    Reading one waits for the device, where it may still be computed.
    """

    grad_norm: Tensor
    """The norm of the mean gradient over all lanes, before clipping; infinity if the step was not applied."""
    is_applied: Tensor
    """False if a loss or a gradient of any worker was not finite: weights and moments are then unchanged."""


class ModuleEngine:
    """A module with its optimizer, partitioned over the workers by the ZeRO stage; needs a process group.

    Parameters that need no gradient are neither trained nor part of the state.
    """

    def __init__(
        self, module: nn.Module, optimizer: torch.optim.Optimizer, settings: EngineSettings, world_size: int
    ) -> None:
        """Initialise DeepSpeed. The groups of `optimizer` have a `rate_share`, see `set_learning_rate`."""
        import deepspeed

        trained = {name: one for name, one in module.named_parameters() if one.requires_grad}
        self._settings, self._parameters = settings, trained
        on_gpu = next(iter(trained.values())).device.type == "cuda"
        config = deepspeed_config(settings, world_size, list(trained.values()), on_gpu)
        with _no_memory_reports():
            self._engine, *_ = deepspeed.initialize(model=module, optimizer=optimizer, config=config)
        forget_first_step(self._engine)
        self._is_refused = False
        """Whether the update in progress must not change weights and moments; where the host decides."""
        self._withheld: list[tuple[Tensor, Tensor | None]] = []
        self._device_update: DeviceUpdate | None = None
        if settings.decides_on_device:
            self._device_update = DeviceUpdate(self._engine, list(trained.values()), settings.clip_norm)
            if exchanges_on_own_stream(self._engine.optimizer):
                order_streams_without_host(self._engine.optimizer)
        else:
            base_optimizer(self._engine).register_step_pre_hook(self._withhold)
            base_optimizer(self._engine).register_step_post_hook(self._put_back)
        self._spare_work(world_size)
        self._deterministic_sum: DeterministicSum | None = None
        if settings.deterministic:
            self._deterministic_sum = DeterministicSum(list(trained.values()), settings.micro_batches)

    def loss(self, batch: Any) -> Tensor:
        """Return the module's loss of a micro-batch, for `accumulate`."""
        loss: Tensor = self._engine(batch)
        return loss

    def accumulate(self, loss: Tensor, micro_batch: int) -> None:
        """Add the gradient of one micro-batch's mean loss.

        `micro_batch` is its index in the global batch, [0, micro_batches); a worker has consecutive ones and takes them
        in order. Collective: every worker must call it equally often.
        """
        if self._deterministic_sum:
            self._deterministic_sum.add(loss, micro_batch)
            return
        self._engine.backward(loss)
        if not self._engine.is_gradient_accumulation_boundary():
            self._engine.step()  # counts micro-batches

    @property
    def device(self) -> torch.device:
        """The device of the weights that the module computes with."""
        device: torch.device = self._engine.device
        return device

    @property
    def decides_on_device(self) -> bool:
        """Whether `update` returns without waiting for the device: the host then knows its result later."""
        return self._device_update is not None

    def update(self, rate: float, is_loss_finite: Tensor | None = None) -> Update:
        """Update the weights with the mean gradient of all micro-batches, clipped; collective.

        They do not change if `is_loss_finite` (bool [], the same on all workers; None for true) is false or the
        gradient is not finite.
        """
        set_learning_rate(self._engine.optimizer.param_groups, rate)
        if self._device_update is not None:
            norm, is_applied = self._device_update.make(is_loss_finite)
            return Update(torch.where(is_applied, norm, math.inf), is_applied)
        norm_read = self._update_read(is_loss_finite is None or bool(is_loss_finite))
        return Update(
            torch.full((), norm_read, dtype=torch.float64, device=self.device),
            torch.full((), math.isfinite(norm_read), device=self.device),
        )

    def pieces(self) -> EnginePieces:
        """Copy this worker's part of masters and moments to CPU memory; no communication."""
        return local_pieces(self._engine, self._parameters, dist.get_rank(), dist.get_world_size())

    def restore(self, source: StateSource) -> None:
        """Restore the state in `source` bit for bit, whatever ZeRO stage and number of workers wrote it.

        Must be called before the first step, by every worker.
        """
        restore_state(self._engine, self._parameters, source)

    def masters(self) -> dict[str, Tensor]:
        """Return the whole float32 weights by name in CPU memory on rank 0, nothing elsewhere; collective."""
        pieces: dict[str, list[Piece]] = {}
        for piece in self.pieces().masters:
            pieces.setdefault(piece.name, []).append(piece)
        masters = {}
        for name, parameter in self._parameters.items():
            shape = whole_shape(parameter)
            whole_X = torch.zeros(shape.numel(), device=self._engine.device)
            for piece in pieces.get(name, ()):
                whole_X[piece.start : piece.start + len(piece.values_X)] = piece.values_X.to(whole_X.device)
            dist.reduce(whole_X, 0)
            if dist.get_rank() == 0:
                masters[name] = whole_X.view(shape).cpu()
        return masters

    def close(self) -> None:
        """Remove DeepSpeed's hooks from the model; without this a process with ZeRO 3 aborts at its exit."""
        self._engine.destroy()

    def _update_read(self, is_loss_finite: bool) -> float:
        """Update, reading the gradient's norm; return it, or infinity if the update was refused."""
        self._is_refused = not is_loss_finite
        if self._deterministic_sum:
            norm = self._update_with(self._deterministic_sum.take(self._settings.clip_norm))
        else:
            self._engine.step()
            norm = float(self._engine.get_global_grad_norm())
        if is_loss_finite and math.isfinite(norm) and self._engine.was_step_applied():
            return norm
        drop_gradients(self._engine)
        return math.inf

    def _withhold(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Remove the gradients before torch's optimizer updates, so that it changes nothing.

        DeepSpeed still counts micro-batches and clears its sums as in every other step.
        """
        if self._is_refused:
            masters = [master for group in optimizer.param_groups for master in group["params"]]
            self._withheld = [(master, master.grad) for master in masters]
            for master in masters:
                master.grad = None

    def _put_back(self, *_: Any) -> None:
        """Restore the removed gradients: offloaded masters use the same gradient's memory in every step."""
        for master, gradient in self._withheld:
            master.grad = gradient
        self._withheld = []

    def _spare_work(self, world_size: int) -> None:
        """Switch off work of DeepSpeed's that is not needed."""
        optimizer = self._engine.optimizer
        if hasattr(optimizer, "update_hp_grads"):
            add_with_few_passes(optimizer)
        shares_gradients_out = self._settings.zero_stage > 1 or hasattr(optimizer, "reduce_gradients")
        if world_size == 1 and not shares_gradients_out:
            # A single worker's gradients are already the sum. DeepSpeed would copy them and round them to bfloat16.
            self._engine.enable_backward_allreduce = False

    def _update_with(self, gradient: SummedGradient) -> float:
        """Update with a gradient that was summed and clipped outside of DeepSpeed; return its norm."""
        assert self._deterministic_sum
        if math.isfinite(gradient.norm):
            # The mean over the workers, of which one has an element and the others 0, is then exact.
            scaled_X = gradient.part_X * dist.get_world_size()
            backward_with(
                self._engine, list(self._parameters.values()), self._deterministic_sum.views(scaled_X)
            )
            self._engine.step()
        return gradient.norm


@contextmanager
def _no_memory_reports() -> Iterator[None]:
    """Silence DeepSpeed's memory reports, for which the optimizer of ZeRO 1 collects garbage six times (over 1 s)."""
    from deepspeed.runtime import bf16_optimizer

    reports = bf16_optimizer.see_memory_usage
    bf16_optimizer.see_memory_usage = lambda *_, **__: None
    try:
        yield
    finally:
        bf16_optimizer.see_memory_usage = reports
