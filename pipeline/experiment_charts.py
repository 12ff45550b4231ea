"""The pictures of an experiment's report."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from pipeline.charts import BLUE, CURVE_INCHES, GREEN, GREY, HALF_INCHES, ORANGE, RED
from pipeline.svg import draw

_COLOURS = (BLUE, ORANGE, GREEN, RED, GREY)
_MAX_POINTS = 300


def curve_chart(lines: Mapping[str, Sequence[tuple[int, float]]], title: str) -> str:
    """An SVG of (step, value) points, a line per job."""

    def paint(axes: Any) -> None:
        for colour, (job, points) in zip(cycle(_COLOURS), lines.items(), strict=False):
            stride = -(-len(points) // _MAX_POINTS)
            shown = [*points[::stride], points[-1]]
            axes.plot([step for step, _ in shown], [value for _, value in shown], color=colour, label=job)
        axes.set_xlabel("steps")
        axes.legend(fontsize=7)

    return draw(HALF_INCHES, CURVE_INCHES, paint, title.replace(" ", "-"))
