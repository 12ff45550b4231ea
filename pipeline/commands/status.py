"""`permcode status`: shows the state of a run, from another terminal or after its process died."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from cluster.errors import first_line
from cluster.reporter import Reporter, count_text, duration_text
from pipeline.commands.exit_codes import exit_codes, warn
from pipeline.folder.pretrain_folder import Shape, StatusFolder, find_status_folder, read_shape
from pipeline.folder.run_status import RunStatus, read_run_status
from pipeline.folder.status_facts import StatusFacts, read_facts
from pipeline.mlflow.parent_run import end_dead_runs
from pretrain.figures import (
    GOODPUT,
    SPEED_OF_STEPS,
    Figure,
    final_validation,
    goodput_figure,
    overall_speed,
    share_text,
    speed_of_steps,
    validation_in_training,
)
from pretrain.goodput import LABELS, Goodput
from pretrain.plan.hardware import flops_per_token, gpu_of_device


@dataclass(frozen=True)
class Speed:
    """The computing speed of all workers together."""

    flops_per_s: float
    """FLOPs of the model's forward and backward passes per second."""
    mfu: float | None
    """The share of the workers' peak in the run's precision; None for a device whose peak is not known."""


def speed_of(facts: StatusFacts, shape: Shape | None) -> Speed | None:
    """Return the computing speed; None before the first step or if the model is not known."""
    if shape is None or facts.tokens_per_s is None:
        return None
    flops_per_s = facts.tokens_per_s * flops_per_token(shape.config, shape.vocab_size)
    gpu = gpu_of_device(facts.device) if facts.device is not None else None
    if gpu is None or not facts.world_size:
        return Speed(flops_per_s, None)
    return Speed(flops_per_s, flops_per_s / (facts.world_size * gpu.peak_flops(shape.config.precision)))


_LABEL_CHARS = 24
_DONE = {
    "starting": "starting since",
    "running": "running since",
    "hanging": "HANGS: no heartbeat since",
    "stopped": "stopped at",
    "finished": "finished at",
    "failed": "failed at",
    "dead": "DEAD since",
}


def status_lines(
    facts: StatusFacts, speed: Speed | None, finished_stages: Sequence[str], run: RunStatus | None = None
) -> Iterator[str]:
    """Yield a headline, the newest command, a line for each figure, the goodput table and the newest warnings."""
    restarts = f", restarted {facts.num_attempts - 1} times" if facts.num_attempts > 1 else ""
    yield f"{facts.folder}: {_DONE[facts.state]} {_clock(facts.since_s)}{restarts}"
    yield from run_lines(run)
    if facts.problem is not None:
        yield _line("problem", facts.problem)
    if finished_stages:
        yield _line("finished", ", ".join(finished_stages))
    yield _line("step", _step(facts))
    yield from _speeds(facts, speed)
    if facts.left_s is not None:
        yield _line("left", f"about {duration_text(facts.left_s)}")
    if facts.loss is not None:
        yield _line("loss", f"{facts.loss:.4f}")
    if facts.validation is not None:
        yield _figure(validation_in_training(facts.validation, facts.best_validation))
    if facts.final_validation is not None:
        yield _figure(final_validation(facts.final_validation))
    yield _line("checkpoint", _checkpoint(facts))
    yield _line(
        "health",
        f"{facts.num_skipped_steps} skipped steps, {facts.num_rewinds} rewinds, {facts.num_damaged} damaged "
        f"checkpoints, {facts.num_warnings} warnings",
    )
    if facts.stragglers is not None:
        yield _line("workers", facts.stragglers)
    yield from goodput_lines(facts.goodput)
    for warning in facts.warnings:
        yield _line("warning", f"{_clock(warning.time_s)} {warning.text}")


def run_lines(run: RunStatus | None) -> Iterator[str]:
    """Yield what the newest command is doing."""
    for label, text in run.lines() if run is not None else ():
        yield _line(label, text)


def goodput_lines(goodput: Goodput) -> Iterator[str]:
    """Yield the goodput and each part of the wall time, as a share and as a duration."""
    wall_s = goodput.wall_s
    value = goodput_figure(goodput.summary()).value
    yield _line(GOODPUT, f"{value} of {duration_text(wall_s)} since the first process began:")
    for name, seconds in goodput.parts.by_name().items():
        yield f"  {LABELS[name]:<18} {share_text(seconds, wall_s):>8}  {duration_text(seconds):>7}"
    if goodput.unexplained_s > 0.01 * goodput.wall_s:
        yield f"  (of compute, {duration_text(goodput.unexplained_s)} are not covered by any measurement)"


def status_json(
    facts: StatusFacts, speed: Speed | None, finished_stages: Sequence[str], run: RunStatus | None = None
) -> str:
    """Return all figures as JSON; numbers that are not finite are null."""
    values: dict[str, Any] = {
        **asdict(facts),
        "speed": None if speed is None else asdict(speed),
        "finished_stages": list(finished_stages),
        "run": None if run is None else run.to_json(),
    }
    values["goodput"]["shares"] = facts.goodput.shares()
    return json.dumps(_finite(values), indent=2, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _line(label: str, text: str) -> str:
    return f"{label:<{_LABEL_CHARS}}{text}"


def _clock(time_s: float) -> str:
    return datetime.fromtimestamp(time_s).isoformat(sep=" ", timespec="seconds")


def _step(facts: StatusFacts) -> str:
    text = f"{facts.step:,}"
    if facts.num_steps is not None:
        text += f" of {facts.num_steps:,} ({facts.step / facts.num_steps:.1%})"
    if facts.tokens is not None:
        text += f", {count_text(facts.tokens)} tokens"
    if facts.state in ("running", "hanging") and facts.last_step_age_s is not None:
        text += f", {duration_text(facts.last_step_age_s)} ago"
    if facts.furthest_step > facts.step:
        text += f"; steps up to {facts.furthest_step:,} are being repeated"
    return text


def _figure(figure: Figure) -> str:
    return _line(figure.label, f"{figure.value}; {figure.detail}")


def _speeds(facts: StatusFacts, speed: Speed | None) -> Iterator[str]:
    if facts.tokens_per_s is None or facts.step_tokens_per_s is None:
        yield _line(SPEED_OF_STEPS, "unknown before the first step")
        return
    if facts.is_live:
        yield _line("speed now", f"{count_text(facts.tokens_per_s)} tokens/s; median of the newest steps")
    yield _figure(speed_of_steps(facts.step_tokens_per_s, facts.furthest_step))
    if facts.overall_tokens_per_s is not None and facts.furthest_tokens is not None:
        yield _figure(overall_speed(facts.overall_tokens_per_s, facts.furthest_tokens, facts.goodput.wall_s))
    if speed is not None:
        yield _line("computed", _computed(facts, speed))


def _computed(facts: StatusFacts, speed: Speed) -> str:
    workers = f" on {facts.world_size} workers" if facts.world_size else ""
    text = f"{count_text(speed.flops_per_s / 1e9)} GFLOP/s of the model{workers} at the speed of the newest steps"
    if speed.mfu is not None:
        return f"{text}, MFU {speed.mfu:.1%} of {facts.device}"
    return f"{text}; MFU unknown on this machine"


def _checkpoint(facts: StatusFacts) -> str:
    if facts.checkpoint is None:
        return "none yet"
    return (
        f"step {facts.checkpoint.step:,}, {duration_text(facts.checkpoint.age_s)} old, "
        f"{facts.checkpoint.num_steps_since:,} steps since"
    )


def status(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run's --out folder, or a pretrain-KEY folder in it.", show_default=False
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures as one JSON object.")] = False,
) -> None:
    """Show the state of a run: alive or dead, progress, speed, where its time went.

    Only files are read, so the command works wherever the folder can be seen. Whether a process of another machine
    lives is seen by watching its lease and its heartbeat, for up to 20 s if it is dead. MLflow runs that a dead
    process left RUNNING are ended.

    \b
    permcode status runs/demo
    permcode status runs/demo --json
    """
    with exit_codes(None, only_shows=True):
        found = find_status_folder(folder)
        for line in _lines(found, as_json):
            Reporter().line(line)
        if found.out is not None:
            _end_dead_runs(found.out)


def _lines(found: StatusFolder, as_json: bool) -> list[str]:
    stages = found.finished_stages
    run = read_run_status(found.out) if found.out is not None else None
    if found.pretrain is None:
        if as_json:
            facts_now = {"folder": str(found.out), "state": "not begun", "finished_stages": stages}
            return [json.dumps(facts_now | {"run": None if run is None else run.to_json()})]
        headline = f"{found.out}: pretraining has not begun; finished: {', '.join(stages) or 'nothing'}"
        return [headline, *run_lines(run)]
    facts = read_facts(found.pretrain)
    speed = speed_of(facts, read_shape(found))
    if as_json:
        return [status_json(facts, speed, stages, run)]
    return list(status_lines(facts, speed, stages, run))


def _end_dead_runs(out: Path) -> None:
    try:
        num_ended = end_dead_runs(out)
    except Exception as error:  # every store fails in its own way; none may hide a run's state
        warn(f"the MLflow runs of a dead process could not be ended ({first_line(error)})")
        return
    if num_ended:
        warn(f"{num_ended} MLflow runs of a dead process were still RUNNING; their status is now KILLED")
