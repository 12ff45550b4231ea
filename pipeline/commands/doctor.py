"""`permcode doctor`: checks the machine."""

from pathlib import Path
from typing import Annotated

import typer

from cluster.reporter import Reporter
from pipeline.commands.exit_codes import exit_codes


def doctor(
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Also check the disk of this folder.")
    ] = None,
    build: Annotated[
        bool,
        typer.Option("--build", help="Also compile the CPU extensions now instead of in the first run."),
    ] = False,
) -> None:
    """Check what a run needs on this machine.

    Prints one line per check, with the fix if it fails. Exit code 1 if a check fails."""
    with exit_codes(out):
        from cluster.doctor import render, run_checks
        from finetune.sandbox.run import sandbox_check
        from pretrain.model.fused.preflight import attention_check

        checks = [*run_checks(out, build=build), attention_check(build=build), sandbox_check()]
        raise typer.Exit(render(checks, Reporter()))
