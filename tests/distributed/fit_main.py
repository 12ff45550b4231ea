"""One rank of a small fit: a network with dropout learns to reverse the sign of numbers."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from cluster.journal import Journal
from cluster.process_group import configure_environment, join_process_group
from finetune.training.config import FitConfig
from finetune.training.finetuner import fit
from pretrain.checkpoint.rank_files import RankFiles
from pretrain.health.stop import stop_requests
from pretrain.inference.finite import check_finite
from pretrain.journal.recorder import Recorder
from pretrain.randomness import keyed_generator
from pretrain.trainer import Trainer

_NUM_EXAMPLES = 60


class Net(nn.Module):
    """`forward(batch)` is the loss; one layer is frozen."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.frozen, self.below, self.above = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.dropout = nn.Dropout(0.2)
        self.frozen.requires_grad_(False)

    def predicted(self, input_BD: Tensor) -> Tensor:
        """[B, 8]."""
        out: Tensor = self.above(self.dropout(torch.tanh(self.below(self.frozen(input_BD)))))
        return out

    def forward(self, input_BD: Tensor) -> Tensor:
        """Mean squared error against the negated input."""
        return (self.predicted(input_BD).float() + input_BD.float()).square().mean()


class ToyLearner:
    """60 random vectors of made-up lengths."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.module = Net()
        self.input_ND = torch.from_numpy(keyed_generator(1, "toy").normal(size=(_NUM_EXAMPLES, 8))).to(dtype)
        self.lengths_tokens = [1 + number % 7 for number in range(_NUM_EXAMPLES)]

    def batch(self, indices: Sequence[int], draw: int) -> Tensor:
        """[B, 8]."""
        return self.input_ND[list(indices)]

    def depth(self, name: str) -> int:
        """Two layers are trained."""
        return 1 if name.startswith("below") else 0

    def validate(self) -> float:
        """Minus the loss without dropout."""
        with torch.no_grad():
            loss = self.module(self.input_ND)
        check_finite(loss, "the loss")
        return -float(loss)


def _delay_writing(writing_s: float) -> None:
    """Let every checkpoint take so much longer, in its thread."""
    write = RankFiles.write

    def delayed(*arguments: Any) -> Any:
        time.sleep(writing_s)
        return write(*arguments)

    RankFiles.write = delayed  # type: ignore[method-assign]


def main(settings: dict[str, Any]) -> None:
    """Fit in the folder of `settings`."""
    configure_environment("gloo")
    join_process_group("gloo")
    folder, config = Path(settings["folder"]), FitConfig.model_validate(settings["config"])
    metric: float | None = settings["metric"]
    Trainer.LAG_STEPS = {"cpu": settings["lag_steps"]}
    _delay_writing(settings["writing_s"])
    learner = ToyLearner(torch.bfloat16 if config.precision == "bf16" else torch.float32)
    journal = Journal(folder / "journal.jsonl") if dist.get_rank() == 0 else None
    with stop_requests(folder, looks_for_file=dist.get_rank() == 0) as stop:
        validate = learner.validate if metric is None else lambda: metric
        end = fit(learner, config, 3, folder, validate, Recorder(journal), stop)
    if journal is not None:
        journal.event("ended", name="ended", steps=end.steps, stopped=end.stopped)
        journal.close()
    dist.barrier()
    dist.destroy_process_group()
