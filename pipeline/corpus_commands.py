"""The commands about a prepared corpus: inspect, trace, forget."""

from pathlib import Path
from typing import Annotated

import typer

from cluster.errors import UserError
from cluster.reporter import Reporter
from pipeline.exit_codes import exit_codes

Folder = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER", help="A run's --out folder, or a finished prep folder.", show_default=False
    ),
]


def inspect(
    folder: Folder,
    sample: Annotated[int, typer.Option("--sample", min=0, help="How many documents to show.")] = 1,
    document: Annotated[
        str | None, typer.Option("--document", metavar="ID", help="Show only this document, whole.")
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Check every checksum instead; exit code 2 names the first damage."),
    ] = False,
) -> None:
    """What is in the shards: counts, the longest documents, what was dropped, a sample.

    \b
    permcode inspect runs/demo
    permcode inspect runs/demo --document 0123456789abcdef
    permcode inspect runs/demo --verify
    """
    with exit_codes(None, only_shows=True):
        from pipeline import inspect_view
        from pipeline.prep_folder import find_prep_folder

        prep_folder = find_prep_folder(folder).prep
        if verify:
            inspect_view.verify(prep_folder, Reporter())
        elif document is not None:
            inspect_view.show_document(prep_folder, document, Reporter())
        else:
            inspect_view.inspect_prepared(prep_folder, sample, Reporter())


def trace(
    folder: Folder,
    token: Annotated[
        int | None, typer.Option("--token", metavar="N", help="A position in the split's tokens, from 0.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="The split that --token counts in.")] = "train",
    step: Annotated[
        int | None, typer.Option("--step", metavar="N", help="A step of the run's pretraining, from 0.")
    ] = None,
    lane: Annotated[
        int | None, typer.Option("--lane", metavar="L", help="With --step: the lane of the batch, from 0.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", metavar="K", help="With --step: only this token of the segment.")
    ] = None,
) -> None:
    """From a token back to repository, path, line and column.

    \b
    permcode trace runs/demo --token 123456
    permcode trace runs/demo --step 300 --lane 7
    """
    with exit_codes(None, only_shows=True):
        from pipeline.prep_folder import find_prep_folder
        from pipeline.trace_view import step_lines, token_lines

        if (token is None) == (step is None) or (step is None) != (lane is None):
            raise UserError("say which token to trace: --token N, or --step N with --lane L")
        prep_folder = find_prep_folder(folder)
        if token is not None:
            lines = token_lines(prep_folder, split, token)
        else:
            lines = step_lines(prep_folder, step or 0, lane or 0, offset)
        for line in lines:
            Reporter().line(line)


def forget(
    folder: Folder,
    repo: Annotated[
        str | None, typer.Option("--repo", metavar="NAME", help="All documents of this repository.")
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(
            "--path",
            metavar="GLOB",
            help='All documents whose PATH or REPOSITORY/PATH matches; "*" matches "/" too.',
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be taken out; change nothing.")
    ] = False,
) -> None:
    """Take documents out of the shards, for good.

    Only the tars that held them are written anew. The request is kept in forgotten.json, and later preparations in
    this folder keep to it. Repeated or after a kill the command finishes what is left.

    \b
    permcode forget runs/demo --repo some/project
    permcode forget runs/demo --path "*/secret/*" --dry-run
    """
    with exit_codes(None):
        if (repo is None) == (path is None) or "" in (repo, path):
            raise UserError("say what to forget: --repo NAME or --path GLOB")
        from data_prep.forget_requests import ForgetRequest
        from pipeline.forgetting import forget_documents
        from pipeline.prep_folder import find_prep_folder

        request = ForgetRequest(repository=repo, path=path)
        forget_documents(find_prep_folder(folder), request, dry_run, Reporter())
