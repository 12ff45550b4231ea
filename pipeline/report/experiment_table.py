"""Tables of an experiment's systems, for reports and for the terminal."""

from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cluster.reporter import duration_text
from finetune.experiment.results import cut_texts, overlap_text, rates_text
from finetune.experiment.robustness import robustness_rows
from pipeline.folder.layout import RunFiles
from pipeline.folder.stage_record import StageRecord
from pipeline.report.summary import mlflow_command

_TABLE_WIDTH_CHARS = 120


@dataclass(frozen=True)
class SystemRow:
    """A row of the table, as text."""

    name: str
    num_items: str
    """The number of items of the headline metric; a metric with another number has it in its text."""
    parameters: str
    steps: str
    metrics: list[str]
    """The metrics in the order of the table's columns; "" where a system lacks one."""
    against: str


@dataclass(frozen=True)
class SystemTable:
    """All systems of an experiment, the best first."""

    columns: list[str]
    rows: list[SystemRow]
    baseline: str
    headline: str
    overlap: str
    """How much of the test split is in the pretraining corpus; "" if this was not searched."""

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> "SystemTable":
        """Make the table of an experiment's result.json."""
        systems, headline = summary["systems"], summary["headline"]
        columns = list(dict.fromkeys(name for found in systems.values() for name in found["metrics"]))
        order = sorted(systems, key=lambda name: -systems[name]["metrics"][headline]["value"])
        rows = [_row(name, systems[name], columns, headline) for name in order]
        return cls(columns, rows, summary["baseline"], headline, _overlap_of(summary))


def _overlap_of(summary: Mapping[str, Any]) -> str:
    if facts := summary.get("overlap"):
        return f"verbatim in the pretraining corpus: {overlap_text(facts)}"
    if unknown := summary.get("overlap_unknown"):
        return f"verbatim in the pretraining corpus: unknown ({unknown})"
    return ""


def _row(name: str, found: Mapping[str, Any], columns: list[str], headline: str) -> SystemRow:
    num_items = found["metrics"][headline]["num_items"]
    metrics = [_metric_of(found["metrics"].get(column), num_items) for column in columns]
    parameters = f"{found['num_parameters'] / 1e6:.2f}M" if found["num_parameters"] else ""
    seeds = f" x {len(found['seeds'])}" if len(found["seeds"]) > 1 else ""
    steps = f"{found['best_step']:,} of {found['steps']:,}{seeds}" if found["steps"] else ""
    against = _against_text(found.get("against_baseline"))
    return SystemRow(name, f"{num_items:,}", parameters, steps, metrics, against)


def _metric_of(found: Mapping[str, float] | None, usual_items: int) -> str:
    if found is None:
        return ""
    others = "" if found["num_items"] == usual_items else f", {found['num_items']:,.0f} items"
    return metric_text(found) + others


def metric_text(found: Mapping[str, float]) -> str:
    """Return a metric's value with its deviation over seeds or its 95% interval."""
    if "deviation" in found:
        return f"{found['value']:.4g} ± {found['deviation']:.2g}"
    return f"{found['value']:.4g} ({found['low']:.4g} to {found['high']:.4g})"


def _against_text(found: Mapping[str, float] | None) -> str:
    if found is None:
        return ""
    return (
        f"{found['difference']:+.4g} ({found['low']:+.4g} to {found['high']:+.4g}), p {found['p_value']:.2g}"
    )


@dataclass(frozen=True)
class RobustnessTable:
    """The effect of behaviour-preserving changes of the test code on every system, as text."""

    transforms: list[str]
    """The kinds of changes, each with the number of items it could change."""
    rows: list[tuple[str, list[str]]]
    """System, and for each kind the metric before and after, with the interval of the difference."""

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> "RobustnessTable | None":
        """Make the table of an experiment's result.json; None if robustness was not evaluated."""
        found = dict(robustness_rows(summary))
        kinds = list(dict.fromkeys(kind for by_kind in found.values() for kind in by_kind))
        if not kinds:
            return None
        counts = {
            kind: max(int(by_kind[kind]["num_items"]) for by_kind in found.values() if kind in by_kind)
            for kind in kinds
        }
        rows = [(name, [_loss_text(by_kind.get(kind)) for kind in kinds]) for name, by_kind in found.items()]
        return cls([f"{kind} ({counts[kind]:,})" for kind in kinds], rows)


def _loss_text(found: Mapping[str, float] | None) -> str:
    if found is None:
        return ""
    return (
        f"{found['before']:.4g} to {found['after']:.4g}: {found['difference']:+.3g} "
        f"({found['low']:+.3g} to {found['high']:+.3g})"
    )


def experiment_lines(records: Mapping[str, StageRecord], out: Path, store: str) -> list[str]:
    """Return the table and the paths of the results for the terminal. `records`: those of the task and the report."""
    (task,) = (name for name in records if name != "report")
    timed = "the last command" if records[task].resumed else "it"
    return [
        "",
        *summary_lines(records[task].summary, f"{task}: {out}"),
        f"in brackets 95% intervals over the test items; {timed} took {duration_text(records[task].wall_s)}",
        f"report:  {out / RunFiles.REPORT}",
        f"MLflow:  {mlflow_command(store)}",
    ]


def summary_lines(summary: Mapping[str, Any], title: str) -> list[str]:
    """Return the table of an experiment's result.json and further counts, for the terminal."""
    found = SystemTable.of(summary)
    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    for column in ("system", "items", *found.columns, f"{found.headline} against {found.baseline}", "size"):
        table.add_column(column.replace("_", " "), overflow="fold")  # so that long names wrap at words
    for row in found.rows:
        table.add_row(row.name, row.num_items, *row.metrics, row.against, row.parameters)
    text = StringIO()
    Console(file=text, width=_TABLE_WIDTH_CHARS, color_system=None).print(table, markup=False)
    robustness = RobustnessTable.of(summary)
    facts = ", ".join(f"{name} {value:g}" for name, value in summary["facts"].items())
    return [
        *(line.rstrip() for line in text.getvalue().rstrip().splitlines()),
        *(_robustness_lines(robustness) if robustness else []),
        *([f"data: {facts}"] if facts else []),
        *([found.overlap] if found.overlap else []),
        *_cut_lines(summary["systems"]),
        *rate_lines(summary),
    ]


def rate_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return a line per system with a search of the learning rate: the rates, their results, and the chosen rate."""
    return [
        f"learning rate of {name}, by {summary['headline']} on {found['num_valid_items']:,} items of the validation "
        f"split: {text}"
        for name, found in summary["systems"].items()
        if (text := rates_text(found))
    ]


def _cut_lines(systems: Mapping[str, Any]) -> list[str]:
    """Return lines about texts that were too long and cut; systems with the same counts share a line."""
    names: dict[str, list[str]] = {}
    for name, found in systems.items():
        if texts := cut_texts(found["cut"]):
            names.setdefault(", ".join(texts), []).append(name)
    return [f"cut: {text} ({', '.join(several)})" for text, several in names.items()]


def _robustness_lines(robustness: RobustnessTable) -> list[str]:
    """Return a line per system and change, because the table would be too wide for a terminal."""
    return ["when the test code is changed without changing its behaviour:"] + [
        f"  {name:<16} {kind:<24} {text}"
        for name, texts in robustness.rows
        for kind, text in zip(robustness.transforms, texts, strict=True)
        if text
    ]
