"""The short training loop that both arms of every task share."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cluster.errors import UserError
from cluster.journal import Journal
from finetune.config import TrainingConfig
from pretrain.randomness import key_seed

_FINAL_SHARE = 0.1


@dataclass(frozen=True)
class StepLoss:
    """The loss of one step's batch, to be minimised, and how many tokens the batch had."""

    loss: Tensor
    num_tokens: int


def compute_device() -> torch.device:
    """The GPU this process was given, or the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def mixed_precision(device: torch.device) -> torch.autocast:
    """bfloat16 where it is safe, float32 weights; the same arithmetic in training and evaluation."""
    return torch.autocast(device.type, dtype=torch.bfloat16)


def learning_rate_share(config: TrainingConfig, step: int) -> float:
    """Share of the peak rate at a step (from 0): linear warm-up, then a cosine down to a tenth."""
    if step < config.warmup_steps:
        return (step + 1) / (config.warmup_steps + 1)
    progress = (step - config.warmup_steps) / max(1, config.steps - 1 - config.warmup_steps)
    return _FINAL_SHARE + (1 - _FINAL_SHARE) * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


def train(
    model: nn.Module,
    config: TrainingConfig,
    seed: int,
    step_loss: Callable[[int], StepLoss],
    journal: Journal,
) -> None:
    """Minimise `step_loss(step)` for `config.steps` steps with AdamW; the model is left in evaluation mode.

    Step records of the journal count from 1 and hold loss, learning_rate and tokens_per_s. The same seed,
    model and losses give the same weights. Raises UserError when the loss stops being finite.
    """
    groups = _parameter_groups(model, config.weight_decay)
    optimizer = torch.optim.AdamW(groups, lr=config.learning_rate, fused=True)
    device = next(model.parameters()).device
    model.train()
    for step in range(config.steps):
        start_s = time.monotonic()
        learning_rate = config.learning_rate * learning_rate_share(config, step)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        torch.manual_seed(key_seed(seed, "finetune-dropout", step))
        with mixed_precision(device):
            batch = step_loss(step)
        loss = batch.loss.item()
        if not math.isfinite(loss):
            raise UserError(
                f"the finetuning loss became {loss} at step {step + 1}: use a lower learning_rate "
                f"than {config.learning_rate}"
            )
        optimizer.zero_grad(set_to_none=True)
        batch.loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), config.gradient_clip)
        optimizer.step()
        elapsed_s = time.monotonic() - start_s
        metrics = {"loss": loss, "learning_rate": learning_rate, "tokens_per_s": batch.num_tokens / elapsed_s}
        journal.step(step + 1, metrics)
    model.eval()


def _parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [one for one in parameters if one.ndim >= 2], "weight_decay": weight_decay},
        {"params": [one for one in parameters if one.ndim < 2], "weight_decay": 0.0},
    ]
