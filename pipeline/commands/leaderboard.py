"""`permcode leaderboard`: a table of all finished experiments by task, also as an HTML page."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from cluster.errors import UserError
from cluster.reporter import Reporter
from cluster.storage import write_bytes
from pipeline.commands.exit_codes import exit_codes
from pipeline.folder.layout import StageFiles
from pipeline.folder.stage_record import StageRecord, read_record
from pipeline.folder.user_files import check_output
from pipeline.report.page import render_page

_TABLE_WIDTH_CHARS = 120
_SHOWN_CHARS = 6
"""The number of characters of a fingerprint that are shown."""


@dataclass(frozen=True)
class Entry:
    """One system of one experiment."""

    task: str
    data: str
    """The name of the test data and the beginning of their fingerprint."""
    system: str
    kind: str
    metric: str
    text: str
    """The headline metric with its interval."""
    value: float
    parameters: int
    num_items: int
    folder: Path


def entries_in(folders: Sequence[Path]) -> list[Entry]:
    """Return the systems of all finished experiments in or below the folders, by task and data, the best first.

    Raises UserError if a folder is missing or nothing is found.
    """
    paths: dict[Path, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UserError(
                f"{folder} is not a folder: give folders of `permcode finetune --from`, or one above them"
            )
        paths |= {path.resolve(): path for path in sorted(_records_below(folder))}
    found: list[Entry] = []
    for path in paths.values():
        record = read_record(path.parent)
        if record is not None and "systems" in record.summary:
            found += [_entry(record, name, path.parent) for name in record.summary["systems"]]
    if not found:
        raise UserError(
            f"no finished experiment in {', '.join(map(str, folders))}: run `permcode finetune --from ...` first"
        )
    return sorted(found, key=lambda one: (one.task, one.data, -one.value))


def _records_below(folder: Path) -> Iterator[Path]:
    """Yield the records in and below `folder`, also behind symbolic links; each folder is visited once."""
    visited: set[Path] = set()
    for place, names, files in os.walk(folder, followlinks=True):
        real = Path(place).resolve()
        if real in visited:
            names.clear()
            continue
        visited.add(real)
        if StageFiles.RECORD in files:
            yield Path(place, StageFiles.RECORD)


def _entry(record: StageRecord, name: str, folder: Path) -> Entry:
    from pipeline.report.experiment_table import metric_text

    summary, config = record.summary, record.config
    found = summary["systems"][name]
    headline = found["metrics"][summary["headline"]]
    task, items_fingerprint = config["task"], summary.get("test_items", record.signature)
    direction = f"{task['source']} to {task['target']}" if "{side}" in str(task.get("test")) else ""
    data = Path(task["folder"]).name if task.get("folder") else "corpus"
    return Entry(
        task=task["kind"],
        # Rows with the same text can be compared.
        data=f"{direction} {data} {items_fingerprint[:_SHOWN_CHARS]}".strip(),
        system=name,
        kind=config["systems"][name]["kind"],
        metric=summary["headline"],
        text=metric_text(headline),
        value=headline["value"],
        parameters=found["num_parameters"],
        num_items=headline["num_items"],
        folder=folder.parent,
    )


def show_leaderboard(folders: Sequence[Path], html: Path | None, reporter: Reporter) -> None:
    """Print the table, and write it to `html` as a page."""
    if html is not None:
        check_output(html, "--html")
    entries = entries_in(folders)
    table = Table(show_edge=False, pad_edge=False)
    for column in ("task", "data", "system", "headline", "items", "parameters", "run"):
        table.add_column(column, overflow="fold")
    for one in entries:
        table.add_row(*_cells(one))
    text = StringIO()
    Console(file=text, width=_TABLE_WIDTH_CHARS, color_system=None).print(table, markup=False)
    for line in text.getvalue().rstrip().splitlines():
        reporter.line(line.rstrip())
    if html is not None:
        write_bytes(html, render_page("leaderboard.html.j2", rows=[_cells(one) for one in entries]).encode())
        reporter.line(f"page: {html}")


def _cells(one: Entry) -> tuple[str, ...]:
    size = f"{one.parameters / 1e6:.2f}M" if one.parameters else ""
    return (
        one.task,
        one.data,
        one.system,
        f"{one.metric} {one.text}",
        f"{one.num_items:,}",
        size,
        str(one.folder),
    )


def leaderboard(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="FOLDER...", help="Folders of experiments, or folders above them.", show_default=False
        ),
    ],
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write the table as an HTML page.")
    ] = None,
) -> None:
    """Print a table of all finished experiments by task.

    \b
    permcode leaderboard runs
    permcode leaderboard runs/translate runs/repair --html leaderboard.html
    """
    with exit_codes(None, only_shows=True):
        show_leaderboard(folders, html, Reporter())
