"""Draws matplotlib figures as inline SVG whose text and lines have the page's colour and font."""

import re
from collections.abc import Callable
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# A placeholder for the colour of the page's text while matplotlib draws; no series may use it.
_INK = "#010203"
_STYLE = {
    "axes.edgecolor": _INK,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.labelcolor": _INK,
    "axes.labelsize": 9,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "font.size": 9,
    "grid.alpha": 0.18,
    "grid.color": _INK,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.labelcolor": _INK,
    "lines.linewidth": 1.6,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
}
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def draw(width_inches: float, height_inches: float, paint: Callable[[Any], None], name: str) -> str:
    """Call `paint(axes)` on one pair of axes and return the SVG element; equal charts give equal texts.

    `name` is a prefix of the ids, so that they are unique among the charts of a page.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(width_inches, height_inches), layout="constrained")
        paint(figure.add_subplot())
        return _inline(figure, name)


def _inline(figure: "Figure", name: str) -> str:
    text = StringIO()
    figure.savefig(text, format="svg", metadata=_NO_METADATA)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = svg.replace(_INK, "currentColor")
    # The page sets the font; matplotlib only needs the size.
    svg = re.sub(r"font: (?:[\w ]*?)([\d.]+px) [^;\"]+", r"font-size: \1; font-family: inherit", svg)
    # Ids are only unique inside one chart.
    svg = re.sub(r'id="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", svg)
    return re.sub(r'width="[\d.]+pt" height="[\d.]+pt" ', "", svg, count=1)
