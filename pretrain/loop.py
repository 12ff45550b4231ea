"""The training loop of one worker: steps, evaluations, commits, from wherever the last commit stands."""

import math
from itertools import islice

import torch
import torch.distributed as dist

from cluster.errors import UserError
from cluster.storage import write_json
from pretrain.agreement import agreed
from pretrain.attempt import Attempt, attempt
from pretrain.config import PretrainConfig
from pretrain.finish import evaluated
from pretrain.health.rewinding import rewind
from pretrain.health.spikes import Spike
from pretrain.run import RESULT_NAME, Run
from pretrain.start import start
from pretrain.step import StepResult, TrainState, train_step

_MOST_DOCUMENTS = 50


def train(run: Run, device: torch.device) -> None:
    """Train to the last step and leave `model/` and `result.json`; the process group must stand.

    Returns early, with a commit of the step it has come to, when it was asked to stop.
    """
    _fix_threads(run.config)
    with attempt(run, device) as this:
        while not this.is_over:
            state = start(this)
            try:
                _run(state, this)
            finally:
                state.feed.close()
                state.engine.close()


def _fix_threads(config: PretrainConfig) -> None:
    """Sums depend on how many threads share them, so bits do."""
    threads = config.threads_per_worker or (1 if config.deterministic else None)
    if threads is not None:
        torch.set_num_threads(threads)


def _run(state: TrainState, this: Attempt) -> None:
    """Until the run ends, is stopped, or goes back to a commit."""
    while state.step < state.config.num_steps:
        result = train_step(state, this.stop.is_made(), this.watchdog)
        _record(state, result, this)
        spike = state.spikes.see(result.step, result.loss) if result.applied else None
        if spike is not None and _answered_by_rewind(state, spike, this):
            return
        _refuse_many_skips(state, result, this)
        if result.stop_asked and state.step < state.config.num_steps:
            _stop(state, this)
            return
        if this.saver.is_due(state.step):
            this.saver.save(state, "cadence", this.bits_per_byte_at(state.step))
    _end(state, this)


def _record(state: TrainState, result: StepResult, this: Attempt) -> None:
    """The step's line in the journal, with an evaluation when one is due."""
    config = state.config
    metrics = {
        "loss": result.loss,
        "learning_rate": result.learning_rate,
        "tokens": float(result.step * config.tokens_per_step),
        "tokens_per_s": config.tokens_per_step / result.step_s,
    }
    if result.applied:
        metrics["grad_norm"] = result.grad_norm
    if result.step == config.num_steps or result.step % config.validation.every_steps == 0:
        metrics |= this.evaluate(state)
    facts = {"cursor": result.cursor, "digest": result.digest, "applied": result.applied}
    compute_s = result.step_s - result.data_s
    this.recorder.step(result.step, metrics, result.data_s, compute_s, **facts)
    this.compare_own_times(result)


def _answered_by_rewind(state: TrainState, spike: Spike, this: Attempt) -> bool:
    """Tell of a spike; go back behind it where that is asked for and possible."""
    if state.config.health.spikes == "off":
        return False
    text = (
        f"loss rose to {spike.loss:.3f} in steps {spike.first_step} to {spike.last_step}, "
        f"{(spike.loss - spike.median) / spike.deviation:.0f} deviations above {spike.median:.3f}"
    )
    this.recorder.event(text, "warning", name="spike", first_step=spike.first_step, last_step=spike.last_step)
    if state.config.health.spikes != "rewind":
        return False
    return rewind(state, spike, text, this)


def _refuse_many_skips(state: TrainState, result: StepResult, this: Attempt) -> None:
    """A step that was not applied is told with what was in it; too many in a row end the run."""
    if result.applied:
        state.skipped_in_a_row = 0
        return
    state.skipped_in_a_row += 1
    cause = "gradient" if math.isfinite(result.loss) else "loss"
    documents = _documents(state, result.cursor)
    text = (
        f"step {result.step} was not applied: its {cause} is not finite; first document in it: {documents[0]}"
    )
    this.recorder.event(
        text,
        "warning",
        name="skipped",
        step=result.step,
        cursor=result.cursor,
        cause=cause,
        documents=documents,
    )
    if state.skipped_in_a_row >= state.config.health.max_skipped_steps:
        raise UserError(
            f"{cause} not finite in {state.skipped_in_a_row} steps in a row, up to step {result.step} (document "
            f"{documents[0]} and others, see {this.run.journal}): lower pretrain.schedule.peak_learning_rate and give "
            "the same command with --accept schedule.peak_learning_rate, or use another --out"
        )


def _documents(state: TrainState, cursor: int) -> list[str]:
    """Ids of the documents that all lanes read at `cursor`, the first ones of them."""
    reader = state.reader
    found = (name for lane in range(reader.lanes) for name in reader.documents(cursor, lane))
    return list(islice(found, _MOST_DOCUMENTS))


def _stop(state: TrainState, this: Attempt) -> None:
    _commit_last(state, this, "stop")
    this.recorder.end(f"stopped after step {state.step}", name="stop", step=state.step)
    this.is_over = True


def _end(state: TrainState, this: Attempt) -> None:
    """The last commit, then the figures, and only then the word that the run is finished."""
    _commit_last(state, this, "end")
    this.watchdog.at(state.step - 1, "evaluate")
    with this.recorder.span("evaluation_s"):
        result = evaluated(this.run, state, this.evaluator, this.watchdog.tick)
    this.recorder.end(f"trained to step {state.step}", name="end", step=state.step)
    if dist.get_rank() == 0:
        write_json(this.run.folder / RESULT_NAME, result)
    dist.barrier()
    this.is_over = True


def _commit_last(state: TrainState, this: Attempt, reason: str) -> None:
    """Commit and wait for it; collective. UserError when it could not be written."""
    this.saver.save(state, reason, this.bits_per_byte_at(state.step))
    this.saver.wait()
    if not agreed(lambda: this.saver.is_committed(state.step)):
        raise UserError(
            f"the checkpoint of step {state.step} could not be written (why stands in {this.run.journal}): mend the "
            "disk and give the same command again, which goes on from the checkpoint before it"
        )
