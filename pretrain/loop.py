"""The training loop of one worker: steps, evaluations, commits, from wherever the last commit stands."""

import math
from itertools import islice
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from cluster.errors import UserError
from cluster.journal import read_journal
from cluster.storage import write_document
from pretrain.agreement import agreed
from pretrain.attempt import Attempt, attempt
from pretrain.checkpoint.listing import step_folders
from pretrain.config import PretrainConfig
from pretrain.figures import VALIDATION_BYTES_FACT
from pretrain.finish import evaluated
from pretrain.health.divergence import (
    EVENT_NAME,
    losses_text,
    rising_from,
    step_to_go_back_to,
    streak_from,
    way_out,
)
from pretrain.health.rewinding import rewind
from pretrain.health.spikes import Spike
from pretrain.ledger.lineage import lineage_of
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
        _see_skipped(state, result, this)
        if state.skipped:
            continue  # what made them not finite must not be what a start goes on from
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
    facts: dict[str, Any] = {"cursor": result.cursor, "digest": result.digest, "applied": result.applied}
    if result.step == config.num_steps or result.step % config.validation.every_steps == 0:
        evaluation = this.evaluate(state)
        metrics |= evaluation.metrics()
        facts[VALIDATION_BYTES_FACT] = evaluation.headline.num_bytes
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


def _see_skipped(state: TrainState, result: StepResult, this: Attempt) -> None:
    """Tell of a step that was not applied; too many in a row end the run."""
    if result.applied:
        if len(state.skipped) == 1:
            _suspect_data(state, state.skipped[0], this)
        state.skipped = []
        return
    state.skipped.append(result)
    this.recorder.event(
        f"step {result.step} was not applied: its {_cause(result)} is not finite",
        "warning",
        name="skipped",
        step=result.step,
        cursor=result.cursor,
        cause=_cause(result),
        documents=_documents(state, result.cursor),
    )
    if len(state.skipped) >= state.config.health.max_skipped_steps:
        _give_up(state, this)


def _cause(result: StepResult) -> str:
    return "gradient" if math.isfinite(result.loss) else "loss"


def _suspect_data(state: TrainState, skipped: StepResult, this: Attempt) -> None:
    """The steps around it are finite, so it is not the weights."""
    documents = _documents(state, skipped.cursor)
    this.recorder.event(
        f"step {skipped.step} alone was not finite, so what it read may be the cause; first document in it: "
        f"{documents[0]}",
        "warning",
        name="suspect_data",
        step=skipped.step,
        cursor=skipped.cursor,
        documents=documents,
    )


def _give_up(state: TrainState, this: Attempt) -> NoReturn:
    """Write down which commit the next start goes back to, and say what leads on; collective. Raises UserError."""
    run, config = this.run, state.config
    this.saver.wait()

    def look() -> tuple[str, dict[str, int]]:
        steps = lineage_of(read_journal(run.journal)).steps
        first = streak_from(steps, state.step)
        rising = rising_from(steps, first, config.health)
        back_to = step_to_go_back_to(run.checkpoints, rising)
        text = f"training diverged: {_what_happened(state, first)}"
        if losses := losses_text(steps, first, rising):
            text += f" (loss {losses})"
        text += f": {way_out(config, run.folder, back_to, len(step_folders(run.checkpoints)))}"
        return text, {"first_step": first, "last_step": state.step, "back_to": back_to}

    text, facts = agreed(look)
    this.recorder.event(text, "warning", name=EVENT_NAME, **facts)
    raise UserError(text)


def _what_happened(state: TrainState, first_step: int) -> str:
    if not state.skipped:
        return f"validation is not finite after step {state.step}"
    return (
        f"the {_cause(state.skipped[-1])} was not finite in {state.step - first_step + 1} steps in a row, "
        f"{first_step} to {state.step}, which did not change the weights"
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
    if not math.isfinite(this.bits_per_byte_at(state.step) or 0.0):
        _give_up(state, this)
    _commit_last(state, this, "end")
    this.watchdog.at(state.step - 1, "evaluate")
    with this.recorder.span("evaluation_s"):
        result = evaluated(this.run, state, this.evaluator, this.watchdog.tick)
    this.recorder.end(f"trained to step {state.step}", name="end", step=state.step)
    if dist.get_rank() == 0:
        write_document(this.run.folder / RESULT_NAME, result)
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
