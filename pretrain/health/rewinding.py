"""Going back behind a loss spike: to the last commit before it, and from there past the data that was in it."""

from pathlib import Path

import torch.distributed as dist

from pretrain.agreement import agreed
from pretrain.attempt import Attempt
from pretrain.checkpoint.finding import discard_newer, last_valid_before
from pretrain.checkpoint.listing import step_of
from pretrain.health.rewinds import Rewind, write_rewinds
from pretrain.health.spikes import Spike
from pretrain.recorder import tell_rewind
from pretrain.step import TrainState


def rewind(state: TrainState, spike: Spike, cause: str, this: Attempt) -> bool:
    """Write the rewind down and drop the commits behind its target; False when there is none to go back to.

    Collective. The caller then starts from the newest commit again, as after a kill.
    """
    this.saver.wait()
    back_to = agreed(lambda: last_valid_before(this.run.checkpoints, spike.first_step))
    refusal = _refusal(state, back_to)
    if refusal or back_to is None:
        this.recorder.event(f"not going back: {refusal}", "warning")
        return False
    window = range(state.cursors[spike.first_step], state.cursors[spike.last_step] + 1)
    event = Rewind(state.step, step_of(back_to) or 0, window.start, window.stop, cause)
    if dist.get_rank() == 0:
        write_rewinds(this.run.folder, state.rewinds.with_one_more(event))
        discard_newer(this.run.checkpoints, event.to_step)
    tell_rewind(this.recorder, event)
    return True


def _refusal(state: TrainState, back_to: Path | None) -> str | None:
    most = state.config.health.max_rewinds
    if len(state.rewinds) >= most:
        return f"health.max_rewinds={most} were made"
    return "no commit from before the spike is left" if back_to is None else None
