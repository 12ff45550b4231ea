"""The figures of a pretraining that are shown in several places; only this file computes and labels them.

`permcode status`, the table at a run's end, the report and MLflow show these. docs/pretraining.md explains each.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cluster.journal import JournalRecord
from cluster.reporter import count_text, duration_text
from pretrain.goodput import LABELS, Goodput, goodput
from pretrain.journal.events import Start, event_of
from pretrain.journal.replay import Replay, replayed

FINAL_VALIDATION = "final validation"
VALIDATION_IN_TRAINING = "validation in training"
SPEED_OF_STEPS = "speed of steps"
OVERALL_SPEED = "overall speed"
GOODPUT = "goodput of pretraining"
VALIDATION_BYTES_FACT = "validation_bytes"
"""The fact of a step with an evaluation: how many bytes of text were scored."""
_VALIDATION = "validation_bits_per_byte"


@dataclass(frozen=True)
class Figure:
    """A figure as it is shown: its label, its value with unit, and how it was measured."""

    label: str
    value: str
    detail: str


@dataclass(frozen=True)
class Validation:
    """The headline of an evaluation during training."""

    step: int
    bits_per_byte: float
    num_bytes: int | None = None
    """The bytes that were scored, a sample of the validation split; None in journals of older versions."""


@dataclass(frozen=True, kw_only=True)
class PretrainFigures:
    """The figures of a journal, of a finished or unfinished run; None is not known yet."""

    replay: Replay
    steps: dict[int, dict[str, float]]
    """The metrics that count by step."""
    num_steps: int
    """The last step."""
    tokens_per_step: int | None
    step_tokens_per_s: float | None
    """The median over all steps that count, by their own time: without evaluations, saves and start-ups."""
    overall_tokens_per_s: float | None
    """The tokens of these steps divided by all time since the first process began, as far as the journal reaches."""
    validation: Validation | None
    """The last evaluation during training."""
    best_validation: Validation | None
    goodput: Goodput

    @property
    def tokens(self) -> int | None:
        """The tokens that all steps read which count."""
        return None if self.tokens_per_step is None else self.num_steps * self.tokens_per_step

    def summary(self) -> dict[str, Any]:
        """Return the figures for a finished stage's record and MLflow; None for steps that the journal lacks."""
        return {
            "final_loss": self.steps.get(self.num_steps, {}).get("loss"),
            "tokens_per_s_median": self.step_tokens_per_s,
            "tokens_per_s_overall": self.overall_tokens_per_s,
            "validation_in_training": None if self.validation is None else asdict(self.validation),
            "best_validation_in_training": None
            if self.best_validation is None
            else asdict(self.best_validation),
            "goodput": self.goodput.summary(),
        }


def figures_of(records: Sequence[JournalRecord], last_beat_s: float | None, now_s: float) -> PretrainFigures:
    """Compute the figures of a journal; the times are as for `goodput`."""
    replay = replayed(records)
    steps = replay.metrics()
    num_steps = max(steps, default=0)
    account = goodput(records, last_beat_s, now_s)
    tokens_per_step = _tokens_per_step(records)
    tokens = sum("loss" in metrics for metrics in steps.values()) * (tokens_per_step or 0)
    speeds = [metrics["tokens_per_s"] for metrics in steps.values() if "tokens_per_s" in metrics]
    validations = _validations(records, steps)
    return PretrainFigures(
        replay=replay,
        steps=steps,
        num_steps=num_steps,
        tokens_per_step=tokens_per_step,
        step_tokens_per_s=statistics.median(speeds) if speeds else None,
        overall_tokens_per_s=tokens / account.wall_s if tokens and account.wall_s else None,
        validation=validations[-1] if validations else None,
        best_validation=min(validations, key=lambda one: one.bits_per_byte, default=None),
        goodput=account,
    )


def bits_text(bits_per_byte: float) -> str:
    """Return a figure with its unit."""
    return f"{bits_per_byte:.3f} bits per byte"


def final_validation(validation: Mapping[str, Any]) -> Figure:
    """Return the figure of `validation` in result.json."""
    error = validation["model_standard_error"]
    # There is no standard error with few documents.
    error_text = "" if error is None else f"standard error {error:.3f}; "
    detail = (
        f"{error_text}the trained model left to right, on {count_text(validation['num_bytes'])} bytes of packages it "
        "never saw"
    )
    return Figure(FINAL_VALIDATION, bits_text(validation["model_bits_per_byte"]), detail)


def validation_in_training(last: Validation, best: Validation | None = None) -> Figure:
    """Return the figure of the last evaluation during training."""
    detail = f"at step {last.step:,}"
    if best is not None:
        detail += f", best {best.bits_per_byte:.3f} at step {best.step:,}"
    if last.num_bytes is not None:
        detail += f"; left to right, on a sample of {count_text(last.num_bytes)} bytes"
    return Figure(VALIDATION_IN_TRAINING, bits_text(last.bits_per_byte), detail)


def speed_of_steps(tokens_per_s: float | None, num_steps: int) -> Figure:
    """Return the figure of the speed of steps alone. None: the journal was moved away and has no step."""
    if tokens_per_s is None:
        return Figure(SPEED_OF_STEPS, "not recorded", "the journal has no step")
    detail = f"median of {num_steps:,} steps, all workers; without start-up, evaluation and saving"
    return Figure(SPEED_OF_STEPS, f"{count_text(tokens_per_s)} tokens/s", detail)


def overall_speed(tokens_per_s: float, tokens: int, wall_s: float) -> Figure:
    """Return the figure of the speed over all time."""
    spent = f"{count_text(tokens)} tokens in {duration_text(wall_s)}"
    detail = f"{spent} since the first process began, everything included"
    return Figure(OVERALL_SPEED, f"{count_text(tokens_per_s)} tokens/s", detail)


def goodput_figure(account: Mapping[str, Any]) -> Figure:
    """Return the figure of `Goodput.summary`."""
    attempts = "one attempt" if account["num_attempts"] == 1 else f"{account['num_attempts']} attempts"
    others = ", ".join(
        f"{LABELS[name]} {share_text(seconds, account['wall_s'])}"
        for name, seconds in account["seconds"].items()
        if name != "compute_s"
    )
    detail = f"of {duration_text(account['wall_s'])} in {attempts}; {others}"
    return Figure(GOODPUT, f"{account['share']:.1%}", detail)


def share_text(seconds: float, wall_s: float) -> str:
    """Return a share of the run's time as text."""
    return f"{seconds / (wall_s or 1.0):.1%}"


def _tokens_per_step(records: Sequence[JournalRecord]) -> int | None:
    starts = [event for record in records if isinstance(event := event_of(record), Start)]
    if not starts or starts[-1].lanes is None or starts[-1].segment_tokens is None:
        return None
    return starts[-1].lanes * starts[-1].segment_tokens


def _validations(
    records: Sequence[JournalRecord], steps: Mapping[int, Mapping[str, float]]
) -> list[Validation]:
    num_bytes: dict[int, int] = {}
    for record in records:
        if record.step is not None and VALIDATION_BYTES_FACT in record.facts:
            num_bytes[record.step] = int(record.facts[VALIDATION_BYTES_FACT])
    return [
        Validation(step, metrics[_VALIDATION], num_bytes.get(step))
        for step, metrics in steps.items()
        if _VALIDATION in metrics
    ]
