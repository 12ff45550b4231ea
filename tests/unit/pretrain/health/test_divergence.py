"""Where a run that has diverged goes back to, by its journal."""

from pathlib import Path

import pytest

from cluster.journal import JournalRecord
from pretrain.config import HealthConfig, PretrainConfig
from pretrain.health.divergence import (
    first_high_loss_step,
    first_skipped_step,
    last_good_step,
    losses_text,
    pending_return_step,
    resume_command,
)
from pretrain.journal.replay import SurvivingStep
from tests.checkpoints import write_checkpoint

HEALTH = HealthConfig()


def steps_of(losses: list[float | None]) -> dict[int, SurvivingStep]:
    """From step 1 on; None is a step that was not applied."""
    return {
        step: SurvivingStep(
            step, 0.0, {"applied": loss is not None}, {"loss": float("nan") if loss is None else loss}
        )
        for step, loss in enumerate(losses, start=1)
    }


FALLING = [9.0 - 0.05 * step for step in range(100)]


@pytest.mark.parametrize(
    ("losses", "rising"),
    [
        ([*FALLING, None, None], 101),
        ([*FALLING, 30.0, 9e5, None, None], 101),
        ([*FALLING, 8.0, 4.1, 30.0, None, None], 103),  # what came down again is over
        ([9.0, 8.9, 20.0, 300.0, None, None], 3),  # too early for a median: more than the first loss
        ([None, None], 1),
    ],
)
def test_losses_rise_from_the_first_high_one_directly_before_the_streak(
    losses: list[float | None], rising: int
) -> None:
    steps = steps_of(losses)
    first = first_skipped_step(steps, len(losses))
    assert first == len(losses) - 1
    assert first_high_loss_step(steps, first, HEALTH) == rising


def test_skipped_steps_begin_after_the_last_step_that_was_applied() -> None:
    """Though attempts that went on inside it saw its end only."""
    assert first_skipped_step(steps_of([9.0, None, 8.0, None, None, None]), 6) == 4
    assert first_skipped_step(steps_of([9.0, 8.0]), 2) == 3


def test_a_checkpoint_is_gone_back_to_whose_weights_gave_a_normal_loss(tmp_path: Path) -> None:
    """Weights of step 8 are seen in step 9: when that is the first high one, they are no good."""
    for step in (4, 8, 9):
        write_checkpoint(tmp_path, step)
    assert [last_good_step(tmp_path, rising) for rising in (5, 9, 10, 11)] == [0, 4, 8, 9]
    (tmp_path / "step-00000008" / "state.json").write_text("{}")
    assert last_good_step(tmp_path, 10) == 4


def test_the_losses_shown_begin_with_the_last_normal_one() -> None:
    steps = steps_of([9.0, 8.5, 30.0, 400.0, 9e5, None])
    assert losses_text(steps, 6, 3) == "8.5 in step 2, 30 in step 3, 9e+05 in step 5"
    assert losses_text(steps_of([None]), 1, 1) == ""


def test_only_the_end_of_the_last_attempt_asks_for_a_return() -> None:
    def event(name: str, **facts: int) -> JournalRecord:
        return JournalRecord(kind="event", time_s=0.0, name=name, facts=facts)

    diverged = event("diverged", back_to=4)
    assert pending_return_step([event("start"), diverged, event("attempt")]) == 4
    assert pending_return_step([event("start"), diverged, event("attempt"), event("start")]) is None
    assert pending_return_step([]) is None


@pytest.mark.parametrize(("peak", "reported"), [(1e4, "0.001"), (3e-3, "0.0003"), (2e-5, "2e-06")])
def test_the_proposed_rate_is_a_tenth_and_at_most_the_default(
    peak: float, reported: str, tmp_path: Path
) -> None:
    config = PretrainConfig.model_validate({"num_steps": 1000, "schedule": {"peak_learning_rate": peak}})
    text = resume_command(config, tmp_path / "my run" / "pretrain-0", back_to=0, num_checkpoints=2)
    assert f" pretrain.schedule.peak_learning_rate={reported} --accept schedule.peak_learning_rate`" in text
    assert f"--out '{tmp_path}/my run' " in text
    assert text.endswith("from step 0, as no checkpoint is left whose weights gave a normal loss")
