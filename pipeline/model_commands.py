"""The commands that use a model: complete, infill, score, embed."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from pipeline.exit_codes import exit_codes
from pipeline.streaming import TextOutput, ends_quietly

Run = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="The folder of a run, a stage, a checkpoint or a model.",
        show_default=False,
    ),
]
Files = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help='Files; "-" is standard input.', show_default=False)
]


def score(
    run: Run,
    files: Files,
    lines: Annotated[
        str | None,
        typer.Option(
            "--lines", metavar="FIRST-LAST", help="Only these lines, counted from 1, given all others."
        ),
    ] = None,
    bytes_: Annotated[
        str | None,
        typer.Option(
            "--bytes",
            metavar="START:END",
            help="Only these bytes, counted from 0, END not included, given all others.",
        ),
    ] = None,
    per_token: Annotated[bool, typer.Option("--per-token", help="Also every token's bits.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON per file.")] = False,
) -> None:
    """The exact log-likelihood of files from left to right, or of a part of one given the rest.

    Bits per byte are what the model needs to write the text down. A part is made of the tokens that reach into it.

    \b
    permcode score runs/demo src/*.py
    permcode score runs/demo src/main.py --lines 10-20 --per-token
    """
    with exit_codes(None, only_shows=True), ends_quietly():
        from pipeline.score_view import ScoreRequest, score_lines

        _print(score_lines(ScoreRequest(run, files, lines, bytes_, per_token, as_json)))


def embed(
    run: Run,
    files: Files,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Write here instead: .npz (path, vector) or .jsonl."
        ),
    ] = None,
) -> None:
    """A vector of length one per file, for search: similar files have a large inner product.

    \b
    permcode embed runs/demo src/*.py --out vectors.npz
    """
    with exit_codes(None, only_shows=True), ends_quietly():
        from pipeline.embed_view import embedding_lines

        _print(embedding_lines(run, files, out))


def _print(lines: Iterable[str]) -> None:
    output = TextOutput()
    for line in lines:
        output.write(f"{line}\n".encode(errors="surrogateescape"))
