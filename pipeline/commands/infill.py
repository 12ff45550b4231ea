"""`permcode infill`: fills a hole in a file."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.errors import UserError
from pipeline.commands.exit_codes import exit_codes, warn
from pipeline.commands.options import Beam, Run, SamplingOptions, Seed, Task, Temperature, TopK, TopP
from pipeline.commands.text_output import TextOutput, ends_quietly
from pipeline.folder.task_folder import task_folder
from pipeline.folder.user_files import TextFile, read_text_file

if TYPE_CHECKING:
    from pretrain.inference.any_order import FillingOrder

MARKER = b"<hole>"
DEFAULT_MAX_TOKENS = 64
DEFAULT_TEMPERATURE = 0.0
_PLACE = re.compile(r"(\d{1,18}):(\d{1,18})")


@dataclass(frozen=True)
class InfillRequest:
    """A hole to fill, at `at` ("12:5") or, if that is None, at the one `<hole>` of the file.

    It gets `length` tokens, or as many as the model chooses up to `max_tokens` (None: 64, or half a segment of the
    model if that is less).
    """

    run: Path
    path: Path
    at: str | None
    length: int | None
    max_tokens: int | None
    options: SamplingOptions
    num: int
    order: "FillingOrder"
    at_once: int
    whole: bool


def write_fillings(request: InfillRequest, output: TextOutput) -> None:
    """Write the fillings, or with `whole` the filled files. Raises UserError before the first byte."""
    _check(request)
    sampling = request.options.sampling(DEFAULT_TEMPERATURE, request.num)
    prefix, suffix = _sides(request, read_text_file(request.path))

    from pretrain.inference.language_model import PermutationLM

    model = PermutationLM.from_run(request.run, on_damaged=warn)
    fillings = model.infill(
        prefix,
        suffix,
        length=request.length,
        # By default a hole leaves half a segment to the text around it.
        max_new_tokens=request.max_tokens or min(DEFAULT_MAX_TOKENS, max(1, model.segment_tokens // 2)),
        sampling=sampling,
        beam=request.options.beam,
        num_samples=request.num,
        order=request.order,
        at_once=request.at_once,
    )
    texts = [prefix + one.data + suffix if request.whole else one.data for one in fillings]
    output.write_all([(f"{number} of {len(texts)}", text) for number, text in enumerate(texts, start=1)])


def _check(request: InfillRequest) -> None:
    if request.length is not None and request.max_tokens is not None:
        raise UserError(
            "--length sets the hole's number of tokens, --max-tokens only limits it: give one of them"
        )
    if request.length is None and (request.order != "left_to_right" or request.at_once > 1):
        raise UserError("--order most_certain and --at-once need a hole of known length: give --length too")
    if request.options.beam is not None and (request.order != "left_to_right" or request.at_once > 1):
        raise UserError("--beam searches from left to right: leave out --order and --at-once")


def _sides(request: InfillRequest, file: TextFile) -> tuple[bytes, bytes]:
    """Return the text before and after the hole."""
    if request.at is not None:
        from pretrain.inference.text_ranges import byte_at

        match = _PLACE.fullmatch(request.at)
        if match is None:
            raise UserError(f"--at {request.at}: give LINE:COL, such as 12:5; both count from 1")
        start = byte_at(file.data, int(match[1]), int(match[2]), file.name)
        return file.data[:start], file.data[start:]
    num_holes = file.data.count(MARKER)
    if num_holes != 1:
        raise UserError(
            f"{file.name} holds {num_holes} times the text {MARKER.decode()}: mark one hole, or give --at LINE:COL"
        )
    prefix, _, suffix = file.data.partition(MARKER)
    if not prefix and not suffix:
        raise UserError(f"{file.name} has no text around its hole: give a file with text before or after it")
    return prefix, suffix


class Order(StrEnum):
    """The order in which the tokens of a hole are chosen."""

    left_to_right = "left_to_right"
    most_certain = "most_certain"


def infill(
    run: Run,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help='A file; "-" is standard input.', show_default=False)
    ],
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="LINE:COL",
            help="The position of the hole; both count from 1, columns in characters.",
        ),
    ] = None,
    length: Annotated[
        int | None, typer.Option("--length", metavar="N", min=1, help="Fill in exactly N tokens.")
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            metavar="N",
            min=1,
            help="Fill in at most N tokens; default 64, at most half a segment.",
        ),
    ] = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    beam: Beam = None,
    num: Annotated[
        int,
        typer.Option("--num", "-n", metavar="N", min=1, max=1024, help="The number of fillings to write."),
    ] = 1,
    seed: Seed = 0,
    order: Annotated[
        Order, typer.Option("--order", help="With --length: the order in which tokens are chosen.")
    ] = Order.left_to_right,
    at_once: Annotated[
        int,
        typer.Option(
            "--at-once", metavar="K", min=1, help="With --length: choose up to K tokens in two passes."
        ),
    ] = 1,
    whole: Annotated[
        bool, typer.Option("--whole", help="Write the whole file with the hole filled.")
    ] = False,
    task: Task = None,
) -> None:
    """Fill a hole in a file, given the text on both sides of it.

    Without --at, the text <hole> in the file marks the hole. Only the filling is written; FILE does not change. By
    default the most likely tokens are chosen.

    \b
    permcode infill runs/demo src/main.py --at 12:5
    permcode infill runs/demo marked.py --length 8 --order most_certain --whole > filled.py
    """
    with exit_codes(None, only_shows=True), ends_quietly():
        options = SamplingOptions(temperature, top_k, top_p, beam, seed)
        request = InfillRequest(
            task_folder(run, task), file, at, length, max_tokens, options, num, order.value, at_once, whole
        )
        write_fillings(request, TextOutput())
