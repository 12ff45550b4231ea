"""The training loop: schedule, journal, repeatability."""

from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from cluster.errors import UserError
from cluster.journal import Journal, read_journal
from finetune.config import TrainingConfig
from finetune.train import StepLoss, learning_rate_share, train

CONFIG = TrainingConfig(steps=12, warmup_steps=3, learning_rate=0.01)


def test_rate_warms_up_to_the_peak_and_ends_at_a_tenth() -> None:
    shares = [learning_rate_share(CONFIG, step) for step in range(12)]
    assert shares[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert all(earlier > later for earlier, later in zip(shares[3:], shares[4:], strict=False))
    assert shares[-1] == pytest.approx(0.1)
    assert learning_rate_share(TrainingConfig(steps=1, warmup_steps=0, learning_rate=1), 0) == 1.0


def test_warmup_must_be_shorter_than_the_training() -> None:
    with pytest.raises(ValidationError, match="warmup_steps=5 must be less than steps=5"):
        TrainingConfig(steps=5, warmup_steps=5, learning_rate=1)


def _run(path: Path, scale: float = 1.0) -> nn.Module:
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    def loss(step: int) -> StepLoss:
        inputs = torch.full((16, 4), 1.0 + step % 3)
        return StepLoss(((model(inputs).float() - 2.0) ** 2).mean() * scale, 16)

    train(model, CONFIG, 3, loss, Journal(path))
    return model


def test_every_step_is_in_the_journal_and_the_loss_falls(tmp_path: Path) -> None:
    model = _run(tmp_path / "journal.jsonl")
    records = read_journal(tmp_path / "journal.jsonl")
    assert [record.step for record in records] == list(range(1, 13))
    assert all({"loss", "learning_rate", "tokens_per_s"} == set(record.metrics) for record in records)
    assert records[3].metrics["learning_rate"] == pytest.approx(CONFIG.learning_rate)
    assert records[-1].metrics["loss"] < records[0].metrics["loss"]
    assert not model.training


def test_same_seed_same_weights_whatever_was_drawn_before(tmp_path: Path) -> None:
    first = _run(tmp_path / "a")
    torch.rand(5)
    second = _run(tmp_path / "b")
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)


def test_loss_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="loss became inf at step 1: use a lower learning_rate"):
        _run(tmp_path / "journal.jsonl", scale=float("inf"))
