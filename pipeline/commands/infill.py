"""`permcode infill`: fills the holes in a file."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.errors import UserError
from pipeline.commands.exit_codes import exit_codes, warn
from pipeline.commands.options import Beam, Run, SamplingOptions, Seed, Task, Temperature, TopK, TopP
from pipeline.commands.text_output import TextOutput, ends_quietly
from pipeline.folder.task_folder import task_folder
from pipeline.folder.user_files import TextFile, read_text_file

if TYPE_CHECKING:
    from pretrain.inference.any_order import FillingOrder
    from pretrain.inference.language_model import PermutationLM
    from pretrain.inference.results import Completion, FilledHoles
    from pretrain.inference.sampling import Sampling

DEFAULT_MAX_TOKENS = 64
DEFAULT_TEMPERATURE = 0.0
_MARKER = re.compile(rb"<hole(?::(\d{1,18}))?>")
_PLACE = re.compile(r"(\d{1,18})(?::(\d{1,18})|-(\d{1,18}))(?::(\d{1,18}))?")


@dataclass(frozen=True)
class InfillRequest:
    """The holes to fill, at `at` ("12:5", "10-12"), or, if that is empty, at every `<hole>` of the file.

    A hole gets the tokens that its mark names ("<hole:8>", "12:5:8"), else `length`, else as many as the model chooses
    up to `max_tokens` (None: 64, or half a segment of the model for all holes together if that is less).
    """

    run: Path
    path: Path
    at: list[str]
    length: int | None
    max_tokens: int | None
    options: SamplingOptions
    num: int
    order: "FillingOrder"
    at_once: int | None
    whole: bool
    as_json: bool = False


@dataclass(frozen=True)
class MarkedText:
    """A text around its holes: a hole between every two `parts`.

    `lengths` are the tokens of the holes, None where they are not known; `given_order` has the numbers of the holes in
    the order in which they were marked.
    """

    parts: list[bytes]
    lengths: list[int | None]
    given_order: list[int]

    def filled(self, fillings: Sequence["Completion"]) -> bytes:
        """Return the whole text."""
        return b"".join(
            [self.parts[0], *(one.data + part for one, part in zip(fillings, self.parts[1:], strict=True))]
        )


def write_fillings(request: InfillRequest, output: TextOutput) -> None:
    """Write the fillings, or with `whole` the filled files. Raises UserError before the first byte."""
    sampling = request.options.sampling(DEFAULT_TEMPERATURE, request.num)
    text = marked_text(request, read_text_file(request.path))
    _check(request, text)

    from pretrain.inference.language_model import PermutationLM

    model = PermutationLM.from_run(request.run, on_damaged=warn)
    found = _fillings(model, request, text, sampling)
    if request.as_json:
        for one in found:
            output.write(f"{json.dumps(_record(one))}\n".encode())
        return
    texts = []
    for number, one in enumerate(found, start=1):
        name = f"{number} of {len(found)}"
        if request.whole:
            texts.append((name, text.filled(one.holes)))
        elif len(one.holes) == 1:
            texts.append((name, one.holes[0].data))
        else:
            of = f"{name}, " if len(found) > 1 else ""
            texts += [
                (f"{of}hole {hole} of {len(one.holes)}", filling.data)
                for hole, filling in enumerate(one.holes, start=1)
            ]
    output.write_all(texts)


def _fillings(
    model: "PermutationLM", request: InfillRequest, text: MarkedText, sampling: "Sampling"
) -> list["FilledHoles"]:
    """Return all samples, or the best of a beam."""
    if request.options.beam is None and (request.as_json or len(text.lengths) > 1):
        order = text.given_order if request.order == "left_to_right" else request.order
        return [
            model.infill_holes(
                text.parts,
                length=text.lengths,
                max_new_tokens=request.max_tokens,
                sampling=sampling,
                order=order,
                at_once=request.at_once,
                sample=sample,
            )
            for sample in range(request.num)
        ]
    from pretrain.inference.results import FilledHoles

    # By default a hole leaves half a segment to the text around it.
    most_tokens = request.max_tokens or min(DEFAULT_MAX_TOKENS, max(1, model.segment_tokens // 2))
    found = model.infill(
        *text.parts,
        length=text.lengths[0],
        max_new_tokens=most_tokens,
        sampling=sampling,
        beam=request.options.beam,
        num_samples=request.num,
        order=request.order,
        at_once=request.at_once,
    )
    return [FilledHoles((one,), (0,), one.log_likelihood, 0) for one in found]


def _record(one: "FilledHoles") -> dict[str, Any]:
    return {
        "holes": [
            {"text": hole.text, "num_tokens": hole.num_tokens, "log_likelihood": hole.log_likelihood}
            for hole in one.holes
        ],
        "log_likelihood": one.log_likelihood,
        "order": [number + 1 for number in one.order],
        "num_passes": one.num_passes,
    }


def _check(request: InfillRequest, text: MarkedText) -> None:
    if request.length is not None and request.max_tokens is not None:
        raise UserError(
            "--length sets the hole's number of tokens, --max-tokens only limits it: give one of them"
        )
    if request.whole and request.as_json:
        raise UserError("--whole writes files, --json figures: give one of them")
    several, by_certainty = len(text.lengths) > 1, request.order != "left_to_right"
    if None in text.lengths and not several and by_certainty:
        raise UserError("--order most_certain needs a hole of known length: give --length too")
    if request.options.beam is not None and (by_certainty or request.at_once is not None):
        raise UserError("--beam searches from left to right: leave out --order and --at-once")
    if request.options.beam is not None and (several or request.as_json):
        raise UserError("--beam fills one hole and gives no passes: leave it out for several holes or --json")


def marked_text(request: InfillRequest, file: TextFile) -> MarkedText:
    """Return the text around the holes. Raises UserError for holes that overlap or are not in the file."""
    if request.at:
        marked = [_hole_at(one, file) for one in request.at]
    else:
        marked = [
            (one.start(), one.end(), None if one[1] is None else one[1].decode())
            for one in _MARKER.finditer(file.data)
        ]
    if not marked:
        raise UserError(f"{file.name} holds no mark <hole>: mark the holes, or give --at LINE:COL")
    given_order = sorted(range(len(marked)), key=lambda number: marked[number][:2])
    ascending = [marked[number] for number in given_order]
    for (start, end, _), (next_start, next_end, _) in pairwise(ascending):
        if next_start < end or (start, end) == (next_start, next_end):
            raise UserError(
                f"two holes of {file.name} overlap, at bytes {start} to {end} and from {next_start} on"
            )
    bounds = [0, *(bound for start, end, _ in ascending for bound in (start, end)), len(file.data)]
    parts = [file.data[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True)]
    if not any(parts):
        raise UserError(f"{file.name} has no text around its hole: give a file with text before or after it")
    lengths = [request.length if tokens is None else int(tokens) for _, _, tokens in ascending]
    return MarkedText(parts, lengths, [given_order.index(number) for number in range(len(marked))])


def _hole_at(value: str, file: TextFile) -> tuple[int, int, str | None]:
    """Return where the hole begins and ends in the file, and its number of tokens."""
    from pretrain.inference.text_ranges import byte_at, bytes_of_lines

    match = _PLACE.fullmatch(value)
    if match is None:
        raise UserError(
            f"--at {value}: give LINE:COL, such as 12:5, or lines FIRST-LAST to write anew, such as 10-12; both count "
            "from 1; :N after it is the number of tokens"
        )
    if match[3] is None:
        start = byte_at(file.data, int(match[1]), int(match[2]), file.name)
        return start, start, match[4]
    lines = bytes_of_lines(file.data, int(match[1]), int(match[3]), file.name)
    # The last line end stays, so that what follows begins on a line of its own.
    end = lines.end - file.data[: lines.end].endswith(b"\n")
    return lines.start, end - file.data[lines.start : end].endswith(b"\r"), match[4]


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
        list[str] | None,
        typer.Option(
            "--at",
            metavar="LINE:COL",
            help="The position of a hole, or lines FIRST-LAST to write anew; :N after it: in N tokens. Repeatable.",
        ),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(
            "--length", metavar="N", min=1, help="Fill in exactly N tokens, where the mark has no number."
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            metavar="N",
            min=1,
            help="Fill in at most N tokens per hole; default 64, at most half a segment in all.",
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
        Order,
        typer.Option("--order", help="As marked and left to right, or the surest hole and token first."),
    ] = Order.left_to_right,
    at_once: Annotated[
        int | None,
        typer.Option("--at-once", metavar="K", min=1, help="At most K tokens a pass [1; by certainty 2]."),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Write the whole file with the holes filled.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON: texts, log-likelihood, order, passes.")
    ] = False,
    task: Task = None,
) -> None:
    """Fill the holes in a file, given the text around them and what is written in the others.

    Without --at, every text <hole>, or <hole:8> for 8 tokens, marks a hole. Only the fillings are written; FILE does
    not change. By default the most likely tokens are chosen.

    \b
    permcode infill runs/demo src/main.py --at 12:5
    permcode infill runs/demo src/main.py --at 12:5 --at 3-4 --json
    permcode infill runs/demo marked.py --length 8 --order most_certain --whole > filled.py
    """
    with exit_codes(None, only_shows=True), ends_quietly():
        options = SamplingOptions(temperature, top_k, top_p, beam, seed)
        request = InfillRequest(
            task_folder(run, task),
            file,
            at or [],
            length,
            max_tokens,
            options,
            num,
            order.value,
            at_once,
            whole,
            as_json,
        )
        write_fillings(request, TextOutput())
