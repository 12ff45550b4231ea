"""The charts of an experiment's report."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from pipeline.report.charts import (
    BLUE,
    CURVE_INCHES,
    GREEN,
    GREY,
    HALF_INCHES,
    ORANGE,
    RED,
    ROW_INCHES,
    Chart,
)
from pipeline.report.svg import draw

_COLOURS = (BLUE, ORANGE, GREEN, RED, GREY)
_MAX_POINTS = 300


def curve_chart(lines: Mapping[str, Sequence[tuple[int, float]]], title: str) -> str:
    """Return an SVG of (step, value) points with a line per job."""

    def paint(axes: Any) -> None:
        for colour, (job, points) in zip(cycle(_COLOURS), lines.items(), strict=False):
            stride = -(-len(points) // _MAX_POINTS)
            shown = [*points[::stride], points[-1]]
            axes.plot([step for step, _ in shown], [value for _, value in shown], color=colour, label=job)
        axes.set_xlabel("steps")
        axes.legend(fontsize=7)

    return draw(HALF_INCHES, CURVE_INCHES, paint, title.replace(" ", "-"))


def headline_chart(task: str, summary: Mapping[str, Any]) -> Chart:
    """Return a chart of the headline metric of all systems in an experiment's result.json."""
    name = summary["headline"]
    metrics = {system: found["metrics"][name] for system, found in summary["systems"].items()}
    num_items = metrics[summary["baseline"]]["num_items"]
    note = f"Over {num_items:,} items of the test split, with intervals."
    return Chart(f"{task}: {name}", note, comparison_chart(metrics, name, f"{task}-{name}"))


def comparison_chart(metrics: Mapping[str, Mapping[str, float]], title: str, svg_name: str = "") -> str:
    """Return an SVG of one metric: a bar per system with its interval or its deviation over seeds, the best on top.

    `svg_name` makes its ids unique in a page that has other charts of the same title.
    """
    names = sorted(metrics, key=lambda name: metrics[name]["value"])

    def paint(axes: Any) -> None:
        values = [metrics[name]["value"] for name in names]
        spans = [_span(metrics[name]) for name in names]
        below = [max(0.0, value - low) for value, (low, _) in zip(values, spans, strict=True)]
        above = [max(0.0, high - value) for value, (_, high) in zip(values, spans, strict=True)]
        axes.barh(names, values, color=BLUE, xerr=[below, above], ecolor=GREY)
        axes.set_xlabel(title)

    return draw(HALF_INCHES, 0.7 + ROW_INCHES * len(names), paint, f"bars-{svg_name or title}")


def _span(found: Mapping[str, float]) -> tuple[float, float]:
    if "deviation" in found:
        return found["value"] - found["deviation"], found["value"] + found["deviation"]
    return found["low"], found["high"]
