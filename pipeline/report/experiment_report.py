"""The report of an experiment: one HTML file with its table, curves and sample predictions."""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cluster.journal import read_journal
from cluster.storage import write_bytes
from finetune.experiment.files import PREDICTIONS_NAME, first_rows
from finetune.experiment.pictures import PICTURES_NAME
from finetune.experiment.stage import read_summary
from pipeline.folder.graph import StageContext
from pipeline.folder.layout import RunFiles, StageFiles
from pipeline.report.experiment_table import RobustnessTable, SystemTable, rate_lines
from pipeline.report.page import render_page

_TEMPLATE_NAME = "experiment.html.j2"
_NUM_SAMPLES = 12
_MAX_SHOWN_CHARS = 600


def write_experiment_report(task: str, context: StageContext) -> dict[str, Any]:
    """Write `report.html` of the finished stage `task` to the report's stage folder; return the stage summary."""
    folder = context.inputs[task]
    summary = read_summary(folder)
    html = render_page(
        _TEMPLATE_NAME,
        task=task,
        table=SystemTable.of(summary),
        facts=summary["facts"],
        cut={name: found["cut"] for name, found in summary["systems"].items() if any(found["cut"].values())},
        rates=rate_lines(summary),
        bars=dict(_bars(summary)),
        robustness=RobustnessTable.of(summary),
        curves=dict(_curves(folder)),
        samples=dict(_samples(folder, summary)),
        pictures=dict(_pictures(folder, summary)),
    )
    write_bytes(context.folder / RunFiles.REPORT, html.encode())
    return {"num_bytes": len(html.encode())}


def _bars(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a chart for every metric that all systems have."""
    from pipeline.report.experiment_charts import comparison_chart

    systems = summary["systems"]
    for name in systems[summary["baseline"]]["metrics"]:
        metrics = {system: found["metrics"].get(name) for system, found in systems.items()}
        if all(metrics.values()):
            yield name, comparison_chart({key: one for key, one in metrics.items() if one}, name)


def _curves(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield an SVG of all jobs' training losses and one of their validation metrics, over the steps."""
    from pipeline.report.experiment_charts import curve_chart

    journals = {
        str(path.parent.relative_to(folder)): read_journal(path)
        for path in sorted(folder.glob(f"*/seed-*/{StageFiles.JOURNAL}"))
    }
    for title, name in (("training loss", "loss"), ("validation", "valid")):
        lines = {
            job: [(r.step or 0, r.metrics[name]) for r in records if r.kind == "step" and name in r.metrics]
            for job, records in journals.items()
        }
        lines = {job: points for job, points in lines.items() if points}
        if lines:
            yield title, curve_chart(lines, title)


def _samples(folder: Path, summary: Mapping[str, Any]) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield the first predictions of every system's first seed."""
    for name, found in summary["systems"].items():
        rows = first_rows(_first_job(folder, name, found) / PREDICTIONS_NAME, _NUM_SAMPLES)
        yield name, [{key: _shown(value) for key, value in row.items()} for row in rows]


def _pictures(folder: Path, summary: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the alignment pictures of every system's first seed: base64 text of an SVG by the item's key."""
    for name, found in summary["systems"].items():
        paths = sorted((_first_job(folder, name, found) / PICTURES_NAME).glob("*.svg"))
        if paths:
            yield name, {path.stem: b64encode(path.read_bytes()).decode() for path in paths}


def _first_job(folder: Path, name: str, found: Mapping[str, Any]) -> Path:
    """Return the folder of a system's first seed."""
    return folder / name / f"seed-{found['seeds'][0]}"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + " ..."
