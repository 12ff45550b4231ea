"""The results of an experiment: every system's metrics over its seeds, and the comparison with the baseline.

Shapes: R resamples.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from finetune.metrics.intervals import compare_resampled, estimate, resampled
from finetune.metrics.measured import Measured

BOOTSTRAP_SEED = 0
"""The same for all systems, so that comparisons are paired."""

_COPIED = (
    "num_parameters", "num_trained", "steps", "best_step", "valid", "num_valid_items", "learning_rate",
    "learning_rates_tried", "cut", "robustness",
)  # fmt: skip
Result = Mapping[str, Any]
"""A job's result.json."""


def graded(measured: Sequence[Measured]) -> dict[str, Any]:
    """Return the metrics part of a job's result.json; the first of `measured` is the headline."""
    headline = measured[0]
    return {
        "headline": headline.name,
        "metrics": {one.name: asdict(estimate(one, BOOTSTRAP_SEED)) for one in measured},
        # Comparisons use these values, paired by the same resamples.
        "resampled": [float(value) for value in resampled(headline, BOOTSTRAP_SEED)],
    }


def summary_of(results: Mapping[str, Sequence[Result]], baseline: str) -> dict[str, Any]:
    """Return the experiment's result.json: by system, metrics with interval or deviation, and the comparison.

    `results` has each system's results, one per seed. With several seeds a metric's value is their mean and `deviation`
    is their sample standard deviation; `low` and `high` are the means of the seeds' bounds. A metric is left out unless
    all seeds have it over the same number of items: the overlap may become known, or unknown, between two seeds.
    """
    return {
        "headline": results[baseline][0]["headline"],
        "baseline": baseline,
        "facts": dict(results[baseline][0]["facts"]),
        "systems": {
            name: _system(runs, None if name == baseline else results[baseline])
            for name, runs in results.items()
        },
    }


def cut_texts(cut: Mapping[str, int]) -> list[str]:
    """Return descriptions of how many of a system's texts were truncated."""
    return [f"{count:,} {what.replace('_', ' ')}" for what, count in cut.items() if count]


def rates_text(found: Mapping[str, Any]) -> str:
    """Describe the result of the search over a system's learning rates; "" if there was no search."""
    tried = found.get("learning_rates_tried", [])
    texts = [
        f"{one['learning_rate']:g} "
        + ("diverged" if one["valid"] is None else f"{one['valid']:.4g}")
        + (" (kept)" if one["learning_rate"] == found["learning_rate"] else "")
        for one in tried
    ]
    return ", ".join(texts)


def overlap_text(facts: Mapping[str, Any]) -> str:
    """Describe the overlap: "37 of 6,267 candidates, 2 of 472 answers (8 too short to tell)"."""
    parts = []
    for role, counts in facts["texts"].items():
        not_searched = [
            f"{counts[name]:,} {what}"
            # Results of older versions count nothing as rewritten.
            for name, what in (
                ("too_short", "too short to tell"),
                ("rewritten", "rewritten before publication"),
            )
            if counts.get(name)
        ]
        note = f" ({', '.join(not_searched)})" if not_searched else ""
        parts.append(f"{counts['verbatim']:,} of {counts['texts']:,} {role}{note}")
    share = facts["searched_share"]
    return ", ".join(parts) + ("" if share == 1 else f", in the {share:.1%} of the corpus that were searched")


def _system(runs: Sequence[Result], baseline: Sequence[Result] | None) -> dict[str, Any]:
    first = runs[0]
    metrics = {
        name: _over_seeds([run["metrics"][name] for run in runs])
        for name, found in first["metrics"].items()
        if all(run["metrics"].get(name, {}).get("num_items") == found["num_items"] for run in runs)
    }
    copied = {name: first[name] for name in _COPIED if name in first}
    headline = metrics[first["headline"]]["value"]
    system: dict[str, Any] = {
        "headline": headline, "seeds": [run["seed"] for run in runs], "metrics": metrics, **copied
    }  # fmt: skip
    if baseline is not None:
        system["against_baseline"] = _compared(runs, baseline)
    return system


def _over_seeds(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    values = [one["value"] for one in found]
    means = {name: statistics.fmean(one[name] for one in found) for name in ("value", "low", "high")}
    values_over_seeds = {**found[0], **means}
    if len(values) > 1:
        values_over_seeds["deviation"] = statistics.stdev(values)
    return values_over_seeds


def _compared(runs: Sequence[Result], baseline: Sequence[Result]) -> dict[str, float]:
    """Compare the means over seeds of both sides, resampled over the same items."""
    headline = runs[0]["headline"]
    mine, theirs = (
        statistics.fmean(run["metrics"][headline]["value"] for run in side) for side in (runs, baseline)
    )
    mine_R, theirs_R = (np.mean([run["resampled"] for run in side], axis=0) for side in (runs, baseline))
    found = compare_resampled(mine - theirs, mine_R - theirs_R, runs[0]["metrics"][headline]["num_items"])
    return {
        "difference": found.difference,
        "low": found.low,
        "high": found.high,
        "p_value": found.p_value,
    }
