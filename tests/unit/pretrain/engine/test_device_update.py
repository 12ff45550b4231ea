"""An update that the device decides about: that of plain PyTorch where all is finite, and none where it is not."""

from typing import Any

import pytest
import torch

from pretrain.engine.device_update import DeviceUpdate
from pretrain.engine.optimizer import set_learning_rate
from tests.torch_step import CLIP_NORM, RATE, PlainEngine, TorchStep, equal

CPU = torch.device("cpu")


def test_it_is_plain_pytorchs_update_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, plain = TorchStep(CPU, dropout=0.1), TorchStep(CPU, dropout=0.1)

    def made_plainly(is_loss_finite: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        norm = torch.nn.utils.clip_grad_norm_(plain.model.parameters(), CLIP_NORM)
        set_learning_rate(plain.optimizer.param_groups, RATE)
        plain.optimizer.step()
        plain.optimizer.zero_grad()
        return norm, is_loss_finite

    for handle in (plain.optimizer._optimizer_step_pre_hooks, plain.optimizer._optimizer_step_post_hooks):
        handle.clear()
    monkeypatch.setattr(plain.update, "make", made_plainly)
    for cursor in range(6):
        loss, norm, is_applied = ours.make(cursor).read()
        assert [loss, norm, is_applied] == plain.make(cursor).read()
        assert is_applied
        assert norm > CLIP_NORM, "else nothing is clipped"
        assert equal(ours.state(), plain.state())


@pytest.mark.parametrize("spoil", ["loss", "gradient"])
@pytest.mark.parametrize("first", [0, 2])
def test_a_step_that_is_not_finite_is_as_if_it_had_not_been(spoil: str, first: int) -> None:
    """Also as the first of all, before Adam has moments."""
    spoilt, sound = TorchStep(CPU), TorchStep(CPU)
    for cursor in range(first):
        spoilt.make(cursor)
        sound.make(cursor)
    before = spoilt.state()
    for cursor in (90, 91):
        *_, is_applied = spoilt.make(cursor, spoil).read()
        assert not is_applied
    if first:
        assert equal(spoilt.state(), before)
    for cursor in range(first, first + 3):
        assert spoilt.make(cursor).read() == sound.make(cursor).read()
    assert equal(spoilt.state(), sound.state())


def test_only_an_optimizer_that_can_refuse_is_taken() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    engine: Any = PlainEngine(torch.optim.AdamW([weight], fused=False), CPU)
    with pytest.raises(ValueError, match="fused"):
        DeviceUpdate(engine, [weight], CLIP_NORM)
