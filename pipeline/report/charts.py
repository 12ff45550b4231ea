"""The report's charts of pretraining and time, as inline SVG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.reporter import count_text, duration_text
from pipeline.report.curve_data import Curve, smooth
from pipeline.report.svg import draw
from pretrain.figures import VALIDATION_IN_TRAINING, Figure
from pretrain.goodput import LABELS, Goodput

# Readable on white and on near-black, and distinguishable without colour vision.
BLUE, ORANGE, GREEN, GREY, RED = "#3b82c4", "#e08a1e", "#2f9e6e", "#8a8f98", "#d1495b"
WIDE_INCHES, HALF_INCHES, CURVE_INCHES = 9.2, 4.5, 2.7
ROW_INCHES = 0.23
_NO_CURVE = Curve([], [])


@dataclass(frozen=True)
class Chart:
    """A chart as SVG with its title and note. `is_wide` gives it the whole width of the page."""

    title: str
    note: str
    svg: str
    is_wide: bool = False


def bits_per_byte(curves: Mapping[str, Curve], unigram: float, bigram: float) -> Chart:
    """Return a chart of the validation bits per byte, compared with the unigram and bigram models."""
    curve = curves.get("validation_bits_per_byte", _NO_CURVE)

    def paint(axes: Any) -> None:
        axes.plot(curve.tokens, curve.values, color=BLUE, marker="o", markersize=3.5, label="model")
        axes.axhline(unigram, color=GREY, linestyle=":", label=f"unigram {unigram:.2f}")
        axes.axhline(bigram, color=ORANGE, linestyle="--", label=f"bigram {bigram:.2f}")
        axes.set_ylim(0, max([unigram, bigram, *curve.values]) * 1.08)
        axes.legend(loc="lower left", fontsize=8)
        token_axis(axes, "bits per byte")

    note = (
        f"{VALIDATION_IN_TRAINING.capitalize()}, left to right, on a sample of packages that are not in the training "
        "split. Lower is better."
    )
    return Chart("Validation bits per byte", note, draw(HALF_INCHES, CURVE_INCHES, paint, "bpb"))


def loss(curves: Mapping[str, Curve]) -> Chart:
    """Return a chart of the training loss, raw and smoothed."""
    curve = curves.get("loss", _NO_CURVE)

    def paint(axes: Any) -> None:
        axes.plot(curve.tokens, curve.values, color=BLUE, alpha=0.3, linewidth=0.8)
        axes.plot(curve.tokens, smooth(curve.values), color=BLUE)
        token_axis(axes, "nats per predicted token")

    note = "Any-order prediction, not comparable with validation bits per byte. The thick line is smoothed."
    return Chart("Training loss", note, draw(HALF_INCHES, CURVE_INCHES, paint, "loss"))


def speed(curves: Mapping[str, Curve], of_steps: Figure) -> Chart:
    """Return a chart of the tokens per second over the run, with their median in the note."""
    curve = curves.get("tokens_per_s", _NO_CURVE)

    def paint(axes: Any) -> None:
        axes.plot(curve.tokens, curve.values, color=GREEN, linewidth=1)
        axes.set_ylim(bottom=0)
        token_axis(axes, "tokens per second", count_axis="both")

    note = f"One point per step. {of_steps.label.capitalize()}: {of_steps.value}, {of_steps.detail}."
    return Chart("Tokens per second", note, draw(HALF_INCHES, CURVE_INCHES, paint, "speed"))


def learning_rate(curves: Mapping[str, Curve]) -> Chart:
    """Return a chart of the learning rate over the run."""
    curve = curves.get("learning_rate", _NO_CURVE)

    def paint(axes: Any) -> None:
        axes.plot(curve.tokens, curve.values, color=ORANGE)
        axes.set_ylim(bottom=0)
        token_axis(axes, "learning rate")

    return Chart("Learning rate", "As it was applied.", draw(HALF_INCHES, CURVE_INCHES, paint, "rate"))


def stage_times(wall_s: Mapping[str, float]) -> Chart:
    """Return a chart of the seconds per stage."""
    names, times = list(wall_s), list(wall_s.values())
    labels = [f"{name} ({duration_text(seconds)})" for name, seconds in wall_s.items()]
    svg = bars("times", labels, times, [BLUE] * len(names), "seconds", "{:.0f}")
    return Chart("Time per stage", "The time of the command that finished the stage.", svg, is_wide=True)


def goodput(account: Goodput) -> Chart:
    """Return a chart of the wall time of pretraining by category."""
    seconds, shares = account.parts.by_name(), account.shares()
    labels = [f"{LABELS[name]} ({shares[name]:.1%})" for name in seconds]
    colours = [GREEN if name == "compute_s" else GREY for name in seconds]
    svg = bars("goodput", labels, list(seconds.values()), colours, "seconds", "{:.1f}")
    attempts = "one attempt" if account.num_attempts == 1 else f"{account.num_attempts} attempts"
    note = (
        f"Goodput {account.share:.1%} of {duration_text(account.wall_s)}, {attempts}: all time since the first "
        "process started."
    )
    return Chart("Where the time of pretraining went", note, svg, is_wide=True)


def bars(
    name: str,
    labels: Sequence[str],
    values: Sequence[float],
    colours: Sequence[str],
    unit: str,
    value_format: str = "{:,.0f}",
    legend: Mapping[str, str] | None = None,
) -> str:
    """Return an SVG of horizontal bars, the first on top, each with its value at its end."""

    def paint(axes: Any) -> None:
        bars = axes.barh(range(len(values)), values, color=colours, height=0.72)
        axes.bar_label(bars, [value_format.format(value) for value in values], padding=4, fontsize=8)
        axes.set_yticks(range(len(labels)), escape_labels(labels))
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.set_xlim(0, max([*values, 1e-9]) * 1.1)
        axes.grid(False)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(unit)
        for label, colour in (legend or {}).items():
            axes.barh([0], [0], color=colour, label=label)
        if legend:
            axes.legend(loc="lower right")

    return draw(WIDE_INCHES, 0.75 + ROW_INCHES * len(labels), paint, name)


def escape_labels(labels: Sequence[str]) -> list[str]:
    """Escape labels so that matplotlib does not read a part of them as a formula."""
    return [label.replace("$", r"\$") for label in labels]


def token_axis(axes: Any, label: str, count_axis: str = "x") -> None:
    """Label the axes; the horizontal axis shows the corpus tokens read."""
    from matplotlib.ticker import FuncFormatter

    axes.set_xlabel("corpus tokens read")
    axes.set_ylabel(label)
    axes.set_xlim(left=0)
    formatter = FuncFormatter(lambda value, _position: count_text(value))
    axes.xaxis.set_major_formatter(formatter)
    if count_axis == "both":
        axes.yaxis.set_major_formatter(formatter)
