"""`permcode status`: how a run is doing, from another terminal or after its death."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.reporter import Reporter
from pipeline.exit_codes import exit_codes, warn

if TYPE_CHECKING:
    from pipeline.status_folder import StatusFolder


def status(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run's --out folder, or a pretrain-KEY folder in it.", show_default=False
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="All figures as one JSON object.")] = False,
) -> None:
    """How a run is doing: alive or dead, how far, how fast, where its time went.

    Looks at files only, so it may be asked from anywhere that sees the folder. What a dead process left running in
    MLflow is ended there.

    \b
    permcode status runs/demo
    permcode status runs/demo --json
    """
    with exit_codes(None, only_shows=True):
        from pipeline.status_folder import find_status_folder

        found = find_status_folder(folder)
        for line in _lines(found, as_json):
            Reporter().line(line)
        if found.out is not None:
            _end_dead_runs(found.out)


def _lines(found: "StatusFolder", as_json: bool) -> list[str]:
    from pipeline.status_facts import read_facts
    from pipeline.status_folder import read_shape
    from pipeline.status_speed import speed_of
    from pipeline.status_view import status_json, status_lines

    stages = found.finished_stages
    if found.pretrain is None:
        if as_json:
            return [json.dumps({"folder": str(found.out), "state": "not begun", "finished_stages": stages})]
        return [f"{found.out}: pretraining has not begun; finished: {', '.join(stages) or 'nothing'}"]
    facts = read_facts(found.pretrain)
    speed = speed_of(facts, read_shape(found))
    if as_json:
        return [status_json(facts, speed, stages)]
    return list(status_lines(facts, speed, stages))


def _end_dead_runs(out: Path) -> None:
    from cluster.errors import first_line
    from pipeline.mlflow_parent import end_dead_runs

    try:
        num_ended = end_dead_runs(out)
    except Exception as error:  # every store fails in its own way, and none hides a run's state
        warn(f"MLflow could not be told that the run's process is dead ({first_line(error)})")
        return
    if num_ended:
        warn(f"{num_ended} runs in MLflow were still RUNNING for a dead process: they are KILLED now")
