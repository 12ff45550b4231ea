"""`permcode scan`: finds the lines of files that surprise a model which sees the rest of the file."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.errors import UserError
from pipeline.commands.exit_codes import exit_codes, warn
from pipeline.commands.held_out_lines import surprises_of_held_out_lines
from pipeline.commands.options import Files, Run, Task
from pipeline.commands.scan_report import Limit, ScannedFile, Surprising, json_lines, sarif, table_lines
from pipeline.commands.text_output import ends_quietly, print_lines
from pipeline.folder.task_folder import task_folder
from pipeline.folder.user_files import TextFile, read_text_file

if TYPE_CHECKING:
    from pretrain.inference.false_alarms import HeldOutSurprises
    from pretrain.inference.language_model import PermutationLM
    from pretrain.inference.scanned_text import ScannedText

DEFAULT_FALSE_ALARMS = 0.01


class Format(StrEnum):
    """The form of the output."""

    table = "table"
    json = "json"
    sarif = "sarif"


@dataclass(frozen=True)
class ScanRequest:
    """The files to scan, and which of their lines to report: `top` of each, or by a false-alarm rate (None: 1 %)."""

    run: Path
    paths: list[Path]
    false_alarms: float | None
    top: int | None
    fast: bool
    format: Format
    corpus: Path | None


def scan_lines(request: ScanRequest) -> Iterator[str]:
    """Scan the files and return the lines to print. Raises UserError before the first one."""
    if request.top is not None and (request.false_alarms is not None or request.corpus is not None):
        raise UserError("--top reports lines without a threshold: leave out --false-alarms and --corpus")
    files = [_source(path) for path in request.paths]

    from pretrain.inference.folders import find_model_folder
    from pretrain.inference.language_model import PermutationLM

    found_files = find_model_folder(request.run, warn)
    model = PermutationLM.from_files(found_files)
    held_out, limit = None, Limit(None, None)
    if request.top is None:
        held_out = surprises_of_held_out_lines(model, found_files, request.corpus, fast=request.fast)
        rate = DEFAULT_FALSE_ALARMS if request.false_alarms is None else request.false_alarms
        limit = Limit(rate, held_out.threshold(rate), len(held_out.surprise_N))
    scans = model.scan([file.data for file in files], fast=request.fast)
    reported = [
        _reported(model, file, scan, request.top, limit, held_out)
        for file, scan in zip(files, scans, strict=True)
    ]
    if request.format is Format.sarif:
        return iter([json.dumps(sarif(reported, limit), indent=2)])
    return (json_lines if request.format is Format.json else table_lines)(reported, limit)


def _source(path: Path) -> TextFile:
    file = read_text_file(path)
    if b"\0" in file.data:
        raise UserError(f"{file.name} is binary (it has zero bytes): give a text file")
    return file


def _reported(
    model: "PermutationLM",
    file: TextFile,
    scan: "ScannedText",
    top: int | None,
    limit: Limit,
    held_out: "HeldOutSurprises | None",
) -> ScannedFile:
    lines = scan.ranked()[:top]
    if limit.threshold_bits is not None:
        lines = [line for line in lines if line.surprise_bits > limit.threshold_bits]
    written = model.rewrite_lines(file.data, lines)
    rates = [None if held_out is None else held_out.false_alarm_rate(line.surprise_bits) for line in lines]
    return ScannedFile(file, scan, [Surprising(*one) for one in zip(lines, written, rates, strict=True)])


def scan(
    run: Run,
    files: Files,
    false_alarms: Annotated[
        float | None,
        typer.Option(
            "--false-alarms",
            metavar="SHARE",
            help="The share of held-out lines that would be reported; default 0.01.",
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            "--top", metavar="N", min=1, help="Report the N most surprising lines of each file instead."
        ),
    ] = None,
    fast: Annotated[
        bool, typer.Option("--fast", help="Hide several distant lines at once: faster, not exact.")
    ] = False,
    format_: Annotated[Format, typer.Option("--format", help="The form of the output.")] = Format.table,
    corpus: Annotated[
        Path | None,
        typer.Option(
            "--corpus",
            metavar="FOLDER",
            help="The run or prep folder with the held-out lines; default: the model's own.",
        ),
    ] = None,
    task: Task = None,
) -> None:
    """Report the lines of files that surprise the model, which sees the rest of the file, and what it would write.

    A line's surprise is compared with those of held-out code, the validation documents of the run. A surprising line is
    not always a wrong one.

    \b
    permcode scan runs/demo src/*.py
    permcode scan runs/demo src/main.py --top 5
    permcode scan runs/demo src/*.py --false-alarms 0.005 --format sarif > surprises.sarif
    """
    with exit_codes(None, only_shows=True), ends_quietly():
        request = ScanRequest(task_folder(run, task), files, false_alarms, top, fast, format_, corpus)
        print_lines(scan_lines(request))
