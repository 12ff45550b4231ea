"""How much a system loses when the test code is changed in ways that do not change what it does.

After Li et al., "A Closer Look into Transformer-Based Code Intelligence Through Code Transformation", 2022. A change is
judged on the items it could change, before and after, by the headline metric; never on other items.
"""

from typing import Any, Literal

from cluster.config import Config
from finetune.metrics.intervals import compare
from finetune.modalities.base import Evaluation, Perturbation, WatchOf, no_progress
from finetune.systems.base import System

TransformKind = Literal["rename", "dead_code", "permute", "for_to_while", "swap_branches"]


class RobustnessConfig(Config):
    """The changes that are made to the code of the test split: to what is read, found or labelled."""

    transforms: tuple[TransformKind, ...] = ()
    language: Literal["java", "python"] = "python"
    """Of that code."""


def robustness_of(
    config: RobustnessConfig,
    evaluation: Evaluation,
    system: System,
    seed: int,
    threshold: float | None = None,
    watch: WatchOf = lambda what, num_items: no_progress,
) -> dict[str, dict[str, float]]:
    """Return by transform the number of items, the headline before and after, and the difference with interval.

    Transforms that change nothing are left out. Labels are given by `threshold`, as on the unchanged items.
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
    """(system, by transform) of an experiment's summary, for tables; [] where nothing was tried."""
    return [
        (name, found["robustness"]) for name, found in summary["systems"].items() if found.get("robustness")
    ]
