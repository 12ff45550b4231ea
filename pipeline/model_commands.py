"""The commands that use a model: complete, infill, score, embed."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipeline.exit_codes import exit_codes
from pipeline.streaming import TextOutput, ends_quietly
from pipeline.task_folder import task_folder

Run = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="The folder of a run, a stage, a checkpoint or a model.",
        show_default=False,
    ),
]
Task = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="T",
        help="Of a run: the network that its task T adapted, by the task's name or kind.",
    ),
]
Files = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help='Files; "-" is standard input.', show_default=False)
]
Temperature = Annotated[
    float | None,
    typer.Option("--temperature", metavar="T", min=0.0, help="0 takes the likeliest token every time."),
]
TopK = Annotated[
    int | None, typer.Option("--top-k", metavar="K", min=1, help="Draw only from the K likeliest tokens.")
]
TopP = Annotated[
    float | None,
    typer.Option(
        "--top-p",
        metavar="P",
        min=0.0,
        max=1.0,
        help="Draw only from the fewest tokens that hold P of all.",
    ),
]
Beam = Annotated[
    int | None,
    typer.Option("--beam", metavar="N", min=1, help="Search for the likeliest text, N texts side by side."),
]
Num = Annotated[int, typer.Option("--num", "-n", metavar="N", min=1, help="How many texts to write.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="The same seed draws the same text.")]


class Order(StrEnum):
    """In which order the places of a hole are filled."""

    left_to_right = "left_to_right"
    most_certain = "most_certain"


def complete(
    run: Run,
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="PROMPT", help='The text to go on from; "-" is standard input.', show_default=False
        ),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", metavar="FILE", help="A prompt from a file; may be repeated."),
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="N", min=1, help="Write at most so many tokens.")
    ] = 64,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    beam: Beam = None,
    num: Num = 1,
    seed: Seed = 0,
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="TEXT", help="End before this text; may be repeated."),
    ] = None,
    until_line: Annotated[bool, typer.Option("--until-line", help="End at the end of the line.")] = False,
    echo: Annotated[bool, typer.Option("--echo", help="Write the prompt first.")] = False,
    task: Task = None,
) -> None:
    """Go on from a prompt, from left to right. Only what is new is written.

    Tokens are drawn at temperature 0.8 when nothing else is said. On a terminal one text is written as it comes.
    Several texts have a line before each, as `head` does it.

    \b
    permcode complete runs/demo "def main("
    permcode complete runs/demo --file src/main.py --max-tokens 200 --temperature 0
    git diff | permcode complete runs/demo - --until-line
    """
    with exit_codes(None, only_shows=True), ends_quietly():
        from pipeline.complete_view import CompleteRequest, write_completions
        from pipeline.drawing import DrawingOptions

        drawing = DrawingOptions(temperature, top_k, top_p, beam, seed)
        stops = [*(stop or []), *(["\n"] if until_line else [])]
        request = CompleteRequest(
            task_folder(run, task), prompt, file or [], max_tokens, drawing, num, stops, echo
        )
        write_completions(request, TextOutput())


def infill(
    run: Run,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help='A file; "-" is standard input.', show_default=False)
    ],
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="LINE:COL", help="Where the hole is; both count from 1, columns in characters."
        ),
    ] = None,
    length: Annotated[
        int | None, typer.Option("--length", metavar="N", min=1, help="Fill in exactly so many tokens.")
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            metavar="N",
            min=1,
            help="Fill in at most so many; 64 (at most half a segment) if unsaid.",
        ),
    ] = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    beam: Beam = None,
    num: Annotated[
        int, typer.Option("--num", "-n", metavar="N", min=1, max=1024, help="How many fillings to write.")
    ] = 1,
    seed: Seed = 0,
    order: Annotated[
        Order, typer.Option("--order", help="With --length: which tokens are chosen first.")
    ] = Order.left_to_right,
    at_once: Annotated[
        int,
        typer.Option(
            "--at-once", metavar="K", min=1, help="With --length: choose up to K tokens in two passes."
        ),
    ] = 1,
    whole: Annotated[bool, typer.Option("--whole", help="Write the whole file, filled.")] = False,
    task: Task = None,
) -> None:
    """What belongs into a hole of a file, given the text on both sides of it.

    Without --at the file marks the place by the text <hole>. Only the filling is written, FILE stays as it is. The
    likeliest tokens are taken when nothing else is said.

    \b
    permcode infill runs/demo src/main.py --at 12:5
    permcode infill runs/demo marked.py --length 8 --order most_certain --whole > filled.py
    """
    with exit_codes(None, only_shows=True), ends_quietly():
        from pipeline.drawing import DrawingOptions
        from pipeline.infill_view import InfillRequest, write_fillings

        drawing = DrawingOptions(temperature, top_k, top_p, beam, seed)
        request = InfillRequest(
            task_folder(run, task), file, at, length, max_tokens, drawing, num, order.value, at_once, whole
        )
        write_fillings(request, TextOutput())


def score(
    run: Run,
    files: Files,
    lines: Annotated[
        list[str] | None,
        typer.Option(
            "--lines",
            metavar="FIRST-LAST",
            help="Only these lines, counted from 1, given all others; several: 2,5-7, or repeated.",
        ),
    ] = None,
    bytes_: Annotated[
        list[str] | None,
        typer.Option(
            "--bytes",
            metavar="START:END",
            help="Only these bytes, counted from 0, END not included, given all others; several as for --lines.",
        ),
    ] = None,
    per_token: Annotated[bool, typer.Option("--per-token", help="Also every token's bits.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON per file.")] = False,
    task: Task = None,
) -> None:
    """The exact log-likelihood of files from left to right, or of parts of one together given the rest.

    Bits per byte are what the model needs to write the text down. A part is made of the tokens that reach into it.
    Several parts have a line each, given the rest and the parts before it, and one for all of them.

    \b
    permcode score runs/demo src/*.py
    permcode score runs/demo src/main.py --lines 10-20 --per-token
    permcode score runs/demo src/main.py --lines 10-12,20 --lines 31
    """
    with exit_codes(None, only_shows=True), ends_quietly():
        from pipeline.score_view import ScoreRequest, score_lines

        _print(
            score_lines(
                ScoreRequest(task_folder(run, task), files, lines or [], bytes_ or [], per_token, as_json)
            )
        )


def embed(
    run: Run,
    files: Files,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Write here instead: .npz (path, vector) or .jsonl."
        ),
    ] = None,
    task: Task = None,
) -> None:
    """A vector of length one per file, for search: similar files have a large inner product.

    \b
    permcode embed runs/demo src/*.py --out vectors.npz
    permcode embed runs/demo --task search src/*.py --out vectors.npz
    """
    with exit_codes(None, only_shows=True), ends_quietly():
        from pipeline.embed_view import embedding_lines

        _print(embedding_lines(task_folder(run, task), files, out))


def _print(lines: Iterable[str]) -> None:
    output = TextOutput()
    for line in lines:
        output.write(f"{line}\n".encode(errors="surrogateescape"))
