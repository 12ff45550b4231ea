"""An experiment's systems as a table."""

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
    """A line of the table, as text."""

    name: str
    num_items: str
    """Those of the headline; a metric of other ones tells so itself."""
    parameters: str
    steps: str
    metrics: list[str]
    """In the order of the table's columns; "" where a system has none."""
    against: str


@dataclass(frozen=True)
class SystemTable:
    """All systems of an experiment, the best first."""

    columns: list[str]
    rows: list[SystemRow]
    baseline: str
    headline: str
    overlap: str
    """What of the test split stands in the pretraining corpus; "" where that was not looked for."""

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> "SystemTable":
        """Of an experiment's result.json."""
        systems, headline = summary["systems"], summary["headline"]
        columns = list(dict.fromkeys(name for found in systems.values() for name in found["metrics"]))
        order = sorted(systems, key=lambda name: -systems[name]["metrics"][headline]["value"])
        rows = [_row(name, systems[name], columns, headline) for name in order]
        return cls(columns, rows, summary["baseline"], headline, _overlap_of(summary))


def _overlap_of(summary: Mapping[str, Any]) -> str:
    if facts := summary.get("overlap"):
        return f"verbatim in the pretraining corpus: {overlap_text(facts)}"
    if unknown := summary.get("overlap_unknown"):
        return f"verbatim in the pretraining corpus: cannot be told ({unknown})"
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
    """Value, then the deviation over seeds or the 95% interval."""
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
    """What every system loses by harmless changes of the test code, as text."""

    transforms: list[str]
    """With the number of items each could change."""
    rows: list[tuple[str, list[str]]]
    """System, and by transform the metric before and after with the difference's interval."""

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> "RobustnessTable | None":
        """None where no change was tried."""
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
    """The table and where to look next, for the terminal. `records`: the task's and the report's, by stage name."""
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
    """The table of an experiment's result.json with what else was counted, for the terminal."""
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
    """A line per system whose learning rate was searched for: what was tried, what came of it, which one was kept."""
    return [
        f"learning rate of {name}, by {summary['headline']} on {found['num_valid_items']:,} items of the validation "
        f"split: {text}"
        for name, found in summary["systems"].items()
        if (text := rates_text(found))
    ]


def _cut_lines(systems: Mapping[str, Any]) -> list[str]:
    """What was longer than a system reads or writes, told once for all systems of which it is the same."""
    names: dict[str, list[str]] = {}
    for name, found in systems.items():
        if texts := cut_texts(found["cut"]):
            names.setdefault(", ".join(texts), []).append(name)
    return [f"cut: {text} ({', '.join(several)})" for text, several in names.items()]


def _robustness_lines(robustness: RobustnessTable) -> list[str]:
    """A line per system and change: the table would be too wide for a terminal."""
    return ["when the test code is changed harmlessly:"] + [
        f"  {name:<16} {kind:<24} {text}"
        for name, texts in robustness.rows
        for kind, text in zip(robustness.transforms, texts, strict=True)
        if text
    ]
