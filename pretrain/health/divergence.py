"""A run that diverged: since when its losses rose, which checkpoint is from before that, and how to resume from it.

A loss that is not finite in step after step comes from the weights, not from the data, so checkpoints written while the
losses rose are of no use. The event "diverged" names the checkpoint to go back to; the next start does so.
"""

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from cluster.journal import JournalRecord
from pretrain.checkpoint.listing import step_name, step_of
from pretrain.checkpoint.verify import last_valid_before
from pretrain.config import HealthConfig, PretrainConfig
from pretrain.health.spikes import SpikeDetector
from pretrain.journal.events import Diverged, Ended, Start, Stopped, event_of
from pretrain.journal.replay import SurvivingStep
from pretrain.schedule import ScheduleConfig

_LOOKED_AT_STEPS = 2000
"""A rise of the loss does not take longer."""
_NOTHING_LEARNT = 1.1
"""Losses above so many times the first step's are worse than those of a model that has learnt nothing."""
_SHOWN_STEPS = 3


def first_skipped_step(steps: Mapping[int, SurvivingStep], last_step: int) -> int:
    """Return the first of the consecutive steps up to `last_step` that were not applied; `last_step` + 1 if it was."""
    first = last_step + 1
    while first - 1 in steps and not steps[first - 1].applied:
        first -= 1
    return first


def first_high_loss_step(steps: Mapping[int, SurvivingStep], first_step: int, health: HealthConfig) -> int:
    """Return the first of the consecutive steps before `first_step` with high losses; `first_step` if there is none.

    A loss is high by the rule for loss spikes, or if it is above that of a model that has learnt nothing.
    """
    applied = [made for made in steps.values() if made.applied and made.step < first_step]
    first = steps.get(1)
    most = _NOTHING_LEARNT * first.loss if first is not None and first.applied else math.inf
    detector = SpikeDetector(health.spike_window_steps, health.spike_threshold, patience_steps=1)
    high: list[int] = []
    for made in applied[-_LOOKED_AT_STEPS:]:
        is_high = detector.see(made.step, made.loss) is not None or made.loss > most
        high = [*high, made.step] if is_high else []
    return high[0] if high else first_step


def last_good_step(checkpoints: Path, rising_from_step: int) -> int:
    """Return the step of the newest valid checkpoint whose next step had a normal loss; 0 if there is none."""
    checkpoint = last_valid_before(checkpoints, rising_from_step - 1)
    return 0 if checkpoint is None else step_of(checkpoint) or 0


def pending_return_step(records: Sequence[JournalRecord]) -> int | None:
    """Return the step to go back to at this start; None if the previous attempt did not diverge."""
    events = (event_of(record) for record in reversed(records))
    last = next((one for one in events if isinstance(one, Diverged | Start | Stopped | Ended)), None)
    return last.back_to if isinstance(last, Diverged) else None


def losses_text(steps: Mapping[int, SurvivingStep], first_step: int, rising_from_step: int) -> str:
    """Return the finite losses from the last normal one on as text; empty if there are none."""
    shown = [
        made for made in steps.values() if made.applied and rising_from_step - 1 <= made.step < first_step
    ]
    if len(shown) > _SHOWN_STEPS:
        shown = [shown[0], shown[1], shown[-1]]
    return ", ".join(f"{made.loss:.4g} in step {made.step}" for made in shown)


def resume_command(config: PretrainConfig, folder: Path, back_to: int, num_checkpoints: int) -> str:
    """Return the command that resumes at a lower learning rate; `folder` is the pretraining's in its run's folder."""
    rate = min(config.schedule.peak_learning_rate / 10, ScheduleConfig().peak_learning_rate)
    out = shlex.quote(str(folder.parent))
    recipe = shlex.quote(str(folder.parent / "config.yaml"))
    where = f"checkpoint {step_name(back_to)}, the newest whose weights gave a normal loss"
    if not back_to:
        where = (
            "step 0, as no checkpoint is left whose weights gave a normal loss"
            if num_checkpoints
            else "step 0"
        )
    return (
        f"`permcode pretrain --recipe {recipe} --out {out} pretrain.schedule.peak_learning_rate={rate:g} "
        f"--accept schedule.peak_learning_rate` resumes at a lower learning rate from {where}"
    )
