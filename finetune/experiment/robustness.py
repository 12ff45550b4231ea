"""How much a system's score drops when the test code is transformed without a change of its behaviour.

After Li et al., "A Closer Look into Transformer-Based Code Intelligence Through Code Transformation", 2022. A transform
is evaluated by the headline metric, before and after, only on the items that it changes.
"""

from typing import Any, Literal

from cluster.config import Config
from finetune.metrics.intervals import compare
from finetune.modalities.base import Evaluation, Perturbation, WatchOf, no_progress
from finetune.systems.base import System

TransformKind = Literal["rename", "dead_code", "permute", "for_to_while", "swap_branches"]


class RobustnessConfig(Config):
    """The transforms of the code of the test split: of the code that is read, found or labelled."""

    transforms: tuple[TransformKind, ...] = ()
    language: Literal["java", "python"] = "python"
    """The language of that code."""


def robustness_of(
    config: RobustnessConfig,
    evaluation: Evaluation,
    system: System,
    seed: int,
    threshold: float | None = None,
    watch: WatchOf = lambda what, num_items: no_progress,
) -> dict[str, dict[str, float]]:
    """Return by transform the number of items, the headline before and after, and the difference with interval.

    Transforms that change no item are left out. `threshold` decides labels, as on the unchanged items.
    """
    found: dict[str, dict[str, float]] = {}
    for kind in config.transforms:
        change = Perturbation(kind, config.language, seed)
        both = evaluation.before_and_after(system, change, threshold, watch)
        if both is None:
            continue
        before, after = both
        compared = compare(after, before, seed)
        found[kind] = {
            "num_items": float(before.num_items),
            "before": before.value,
            "after": after.value,
            "difference": compared.difference,
            "low": compared.low,
            "high": compared.high,
            "p_value": compared.p_value,
        }
    return found


def robustness_rows(summary: Any) -> list[tuple[str, dict[str, dict[str, float]]]]:
    """Return (system, results by transform) from an experiment's summary, for tables; [] if no transform was tried."""
    return [
        (name, found["robustness"]) for name, found in summary["systems"].items() if found.get("robustness")
    ]
