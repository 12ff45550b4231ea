"""The figures of scanned lines as JSON, for commands and servers; imports no model."""

from math import isfinite, log
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pretrain.inference.results import Completion
    from pretrain.inference.scanned_text import ScannedLine


def line_record(line: "ScannedLine") -> dict[str, Any]:
    """Return the figures of a line as JSON."""
    return {
        "line": line.number,
        "start_byte": line.bytes.start,
        "end_byte": line.bytes.end,
        "num_tokens": len(line.tokens),
        **line_figures(line),
    }


def written_record(written: "Completion") -> dict[str, Any]:
    """Return what the model would write in place of a line as JSON."""
    return {"text": written.text, "bits": _finite(bits(written.log_likelihood))}


def line_figures(line: "ScannedLine") -> dict[str, float | None]:
    """Return the bits of a line, given the rest and given the text before it."""
    return {
        "bits_given_rest": _finite(line.surprise_bits),
        "bits_given_before": _finite(bits(line.log_probability_before)),
    }


def bits(log_probability: float) -> float:
    """Return the bits of a natural log-probability."""
    return -log_probability / log(2.0)


def _finite(value: float) -> float | None:
    """Return a number that JSON can express."""
    return value if isfinite(value) else None
