"""Training curves from a journal."""

from collections.abc import Sequence
from dataclasses import dataclass

from cluster.journal import JournalRecord
from pretrain.journal.replay import counting_steps

_MAX_POINTS = 600


@dataclass(frozen=True)
class Curve:
    """Values of one metric over the corpus tokens read so far."""

    tokens: list[float]
    values: list[float]


def training_curves(records: Sequence[JournalRecord]) -> dict[str, Curve]:
    """Return a curve for each metric by name, thinned to at most a few hundred points.

    Of steps that a journal has several times, after a resume or a rewind, the record that counts is used.
    """
    points: dict[str, list[tuple[float, float]]] = {}
    tokens = 0.0
    for _, metrics in counting_steps(records).items():
        # A validation written without its own token count belongs to the step before it.
        tokens = metrics.get("tokens", tokens)
        for name, value in metrics.items():
            points.setdefault(name, []).append((tokens, value))
    return {name: _thin(found) for name, found in points.items()}


def smooth(values: Sequence[float], weight: float = 0.8) -> list[float]:
    """Return the exponential moving average with bias correction: its first value is the first of `values`."""
    result = []
    total = norm = 0.0
    for value in values:
        total = weight * total + (1 - weight) * value
        norm = weight * norm + (1 - weight)
        result.append(total / norm)
    return result


def _thin(points: list[tuple[float, float]]) -> Curve:
    stride = -(-len(points) // _MAX_POINTS)
    last = len(points) - 1
    kept = [point for index, point in enumerate(points) if index % stride == 0 or index == last]
    return Curve([tokens for tokens, _ in kept], [value for _, value in kept])
