"""The alignment of written tokens with source tokens, as numbers and as a picture.

Shapes: T target, S source.
"""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cluster.storage import write_bytes

_INCHES_PER_TOKEN = 0.22
_MARGIN_INCHES = 1.6
_MAX_INCHES = 40.0


@dataclass(frozen=True)
class Alignment:
    """`weight_TS[i, j]`: the attention of written token i to source token j; rows sum to 1 (Bahdanau et al. 2015)."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weight_TS: NDArray[np.float32]


@runtime_checkable
class HasAlignment(Protocol):
    """A writer that returns its alignment."""

    def alignment(self, source: str, target: str | None = None) -> Alignment:
        """Return the alignment of `target`, or of the text that the system writes for the source."""
        ...


def draw_alignment(alignment: Alignment, path: Path) -> Path:
    """Write the picture, PNG or SVG by the path's suffix, and return `path`: source across, target down, 1 is white.

    Equal alignments give equal bytes.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    size = [
        min(_MAX_INCHES, _MARGIN_INCHES + _INCHES_PER_TOKEN * len(tokens))
        for tokens in (alignment.source, alignment.target)
    ]
    figure = Figure(figsize=(size[0], size[1]), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(alignment.weight_TS, cmap="gray", vmin=0.0, vmax=1.0, aspect="auto")
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(alignment.source)), map(_label, alignment.source), rotation=90)
    axes.set_yticks(range(len(alignment.target)), map(_label, alignment.target))
    axes.tick_params(labelsize=7, length=0)
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set_fontfamily("monospace")
        label.set_parse_math(False)  # code is full of dollar signs
    data = BytesIO()
    suffix = path.suffix.lstrip(".")
    with rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(data, format=suffix, dpi=120, metadata={"Date": None} if suffix == "svg" else None)
    write_bytes(path, data.getvalue())
    return path


def _label(token: str) -> str:
    """Return the token with visible white space, and `?` for characters that a font may lack."""
    shown = token.replace(" ", "\u00b7").replace("\n", "\\n").replace("\t", "\\t")
    return "".join(
        character if character.isprintable() and ord(character) < 256 else "?" for character in shown
    )
