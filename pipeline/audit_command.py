"""`permcode audit`: which tokens the steps of a run consumed, and whether each was consumed once."""

import json
from pathlib import Path
from typing import Annotated

import typer

from cluster.reporter import Reporter
from pipeline.exit_codes import exit_codes

EXIT_UNBALANCED = 1


def audit(
    folder: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="A run's --out folder.", show_default=False),
    ],
    read: Annotated[
        bool,
        typer.Option("--read", help="Also read every consumed token again and compare it with the journal."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Prove which tokens each step of pretraining consumed: none lost, none repeated.

    From the run's journal and the corpus' manifest alone; --read compares the shards' bytes as well. Exit code 1 when
    the books do not balance.

    \b
    permcode audit runs/demo
    permcode audit runs/demo --read
    """
    with exit_codes(None, only_shows=True):
        from pipeline.audit_view import audit_lines, audited

        found = audited(folder, read)
        lines = [json.dumps(found.to_json(), indent=2)] if as_json else audit_lines(found)
        for line in lines:
            Reporter().line(line)
    if found.problems:
        raise typer.Exit(EXIT_UNBALANCED)
