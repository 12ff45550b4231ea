"""The report of a run: one self-contained HTML file, report.html."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.errors import UserError
from cluster.journal import read_journal
from cluster.reporter import duration_text
from cluster.storage import write_bytes
from pipeline.folder.layout import RunFiles
from pipeline.folder.run_folder import config_text
from pipeline.folder.stage_record import StageRecord, read_record
from pipeline.report.charts import Chart
from pipeline.report.curve_data import training_curves
from pipeline.report.experiment_table import SystemTable
from pipeline.report.page import render_page
from pipeline.report.summary import facts, tasks
from pipeline.report.validation import ValidationTable, order_curves
from pretrain.figures import speed_of_steps
from pretrain.files import PretrainFiles
from pretrain.goodput import goodput

_TEMPLATE_NAME = "report.html.j2"
_NUM_LANGUAGES = 12


def write_report(config: Mapping[str, Any], inputs: Mapping[str, Path], folder: Path) -> dict[str, Any]:
    """Write `folder`/report.html from the finished stages in `inputs` (stage name -> folder); return the stage summary.

    The summary holds the size of the file.
    """
    records = {name: _read_finished(path) for name, path in inputs.items()}
    html = render_report(config, records, inputs["pretrain"] / PretrainFiles.JOURNAL).encode()
    write_bytes(folder / RunFiles.REPORT, html)
    return {"num_bytes": len(html)}


def render_report(config: Mapping[str, Any], records: Mapping[str, StageRecord], journal: Path) -> str:
    """Render the report as HTML; `journal` is the journal of pretraining."""
    prep = records["prep"].summary
    languages = prep["languages"]
    largest = sorted(languages, key=lambda name: (-languages[name]["num_bytes"], name))[:_NUM_LANGUAGES]
    return render_page(
        _TEMPLATE_NAME,
        facts=facts(records),
        sections=_sections(records, journal),
        splits=prep["splits"],
        languages={name: languages[name] for name in largest},
        validation=ValidationTable.of(records["pretrain"].summary["validation"]["table"]),
        tables={name: SystemTable.of(record.summary) for name, record in tasks(records).items()},
        resumes=records["pretrain"].summary["resumed_from"],
        stages=[
            (name, record.finished_at, duration_text(record.wall_s), record.resumed)
            for name, record in records.items()
        ],
        config=config_text(config),
        finished_at=max(record.finished_at for record in records.values()),
    )


def _sections(records: Mapping[str, StageRecord], journal: Path) -> list[tuple[str, list[Chart]]]:
    from pipeline.report import charts
    from pipeline.report.corpus_charts import corpus_charts
    from pipeline.report.experiment_charts import headline_chart

    prep = records["prep"].summary
    pretrain = records["pretrain"].summary
    lines = read_journal(journal)
    curves = training_curves(lines)
    validation = pretrain["validation"]
    training = [
        charts.bits_per_byte(curves, validation["unigram_bits_per_byte"], validation["bigram_bits_per_byte"]),
        *order_curves(curves),
        charts.loss(curves),
        charts.speed(curves, speed_of_steps(pretrain["tokens_per_s_median"], pretrain["num_steps"])),
        charts.learning_rate(curves),
    ]
    compared = [headline_chart(name, record.summary) for name, record in tasks(records).items()]
    times = [
        charts.stage_times({name: record.wall_s for name, record in records.items()}),
        # The time of a finished run ends with its journal.
        charts.goodput(goodput(lines, None, lines[-1].time_s if lines else 0.0)),
    ]
    sections = [
        ("Data", corpus_charts(prep)),
        ("Pretraining", training),
        ("Tasks", compared),
        ("Time", times),
    ]
    return [(title, shown) for title, shown in sections if shown]


def _read_finished(folder: Path) -> StageRecord:
    record = read_record(folder)
    if record is None:
        raise UserError(f"{folder} is not finished: `permcode run` with the same arguments finishes it")
    return record
