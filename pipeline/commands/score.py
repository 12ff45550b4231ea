"""`permcode score`: computes the exact log-likelihood of files, or of parts of one."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite, log
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.errors import UserError
from pipeline.commands.exit_codes import exit_codes, warn
from pipeline.commands.options import Files, Run, Task
from pipeline.commands.text_output import ends_quietly, print_lines
from pipeline.folder.task_folder import task_folder
from pipeline.folder.user_files import TextFile, read_text_file

if TYPE_CHECKING:
    from pretrain.inference.scored_text import ScoredText
    from pretrain.inference.text_ranges import ByteRange

_LINES = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_BYTES = re.compile(r"(\d{1,18}):(\d{1,18})")


@dataclass(frozen=True)
class NamedRange:
    """A part of a file as the user gave it: lines or bytes `first` to `last`, formatted by `pattern`."""

    pattern: str
    first: int
    last: int
    bytes: "ByteRange"

    @property
    def name(self) -> str:
        """The part in words, such as "lines 10-20" or "bytes 100:200"."""
        return self.pattern.format(self.first, self.last)


def ranges_of(file: TextFile, lines: Sequence[str], bytes_: Sequence[str]) -> list[NamedRange]:
    """Return the parts that `lines` ("10-20,7") or `bytes_` ("100:200") select, in the order of the text.

    Overlapping parts are merged, adjacent ones are not. Raises UserError for a part outside the file.
    """
    if lines and bytes_:
        raise UserError("select parts in one way: --lines or --bytes")
    return _merge_overlaps([*_of_lines(file, lines), *_of_bytes(file, bytes_)])


def _of_lines(file: TextFile, values: Sequence[str]) -> Iterator[NamedRange]:
    from pretrain.inference.text_ranges import bytes_of_lines

    wanted = "give FIRST-LAST, such as 10-20, or one line's number; several with commas"
    for match in _matches("--lines", values, _LINES, wanted):
        first, last = int(match[1]), int(match[2] or match[1])
        yield NamedRange("lines {}-{}", first, last, bytes_of_lines(file.data, first, last, file.name))


def _of_bytes(file: TextFile, values: Sequence[str]) -> Iterator[NamedRange]:
    from pretrain.inference.text_ranges import ByteRange

    wanted = "give START:END, such as 100:200; END is not included; several with commas"
    for match in _matches("--bytes", values, _BYTES, wanted):
        part = ByteRange(int(match[1]), int(match[2]))
        part.check_within(len(file.data), file.name)
        yield NamedRange("bytes {}:{}", part.start, part.end, part)


def _matches(
    option: str, values: Sequence[str], pattern: re.Pattern[str], wanted: str
) -> Iterator[re.Match[str]]:
    for value in values:
        for part in value.split(","):
            match = pattern.fullmatch(part.strip())
            if match is None:
                raise UserError(f"{option} {value}: {wanted}")
            yield match


def _merge_overlaps(ranges: Iterable[NamedRange]) -> list[NamedRange]:
    """Return the ranges sorted, overlapping ones merged."""
    from pretrain.inference.text_ranges import ByteRange

    merged: list[NamedRange] = []
    for one in sorted(ranges, key=lambda one: one.bytes.start):
        if merged and one.bytes.start < merged[-1].bytes.end:
            before = merged.pop()
            part = ByteRange(before.bytes.start, max(before.bytes.end, one.bytes.end))
            one = replace(before, last=max(before.last, one.last), bytes=part)
        merged.append(one)
    return merged


@dataclass(frozen=True)
class ScoreRequest:
    """The files to score. `lines` ("10-20", or "7", or "2,5-7") or `bytes_` ("100:200") select parts of one file."""

    run: Path
    paths: list[Path]
    lines: list[str]
    bytes_: list[str]
    per_token: bool
    as_json: bool

    @property
    def has_parts(self) -> bool:
        """Whether only parts of a file are scored."""
        return bool(self.lines or self.bytes_)


def score_lines(request: ScoreRequest) -> Iterator[str]:
    """Score the files and return the lines to print. Raises UserError before the first one."""
    if request.has_parts and len(request.paths) > 1:
        raise UserError("--lines and --bytes select parts of one file: give one file")
    files = [read_text_file(path) for path in request.paths]
    parts = ranges_of(files[0], request.lines, request.bytes_) if request.has_parts else []

    from pretrain.inference.language_model import PermutationLM

    model = PermutationLM.from_run(request.run, on_damaged=warn)
    if parts:
        scored = [model.score_parts(files[0].data, [part.bytes for part in parts])]
    else:
        scored = model.score([file.data for file in files])
    if request.as_json:
        return _json_lines(request, files, parts, scored)
    return _lines(request, files, parts, scored)


def _lines(
    request: ScoreRequest,
    files: Sequence[TextFile],
    parts: Sequence[NamedRange],
    scored: Sequence["ScoredText"],
) -> Iterator[str]:
    for file, one in zip(files, scored, strict=True):
        if len(parts) > 1:
            yield from _part_lines(request, file, parts, one)
        elif request.per_token:
            yield from _token_lines(file, one)
        yield f"{file.name}: {_figures_of(one)}{_context_note(request, one)}"
    if len(files) > 1:
        bits = sum(one.scores.bits for one in scored)
        num_bytes = sum(one.num_bytes for one in scored)
        num_tokens = sum(len(one.token_P) for one in scored)
        yield f"{len(files)} files in all: {_figures(bits, num_bytes, num_tokens)}"


def _part_lines(
    request: ScoreRequest, file: TextFile, parts: Sequence[NamedRange], one: "ScoredText"
) -> Iterator[str]:
    shares = one.shares([part.bytes for part in parts])
    for part, share in zip(parts, shares, strict=True):
        if request.per_token:
            yield from _token_lines(file, share)
        figures = _figures_of(share) if len(share.token_P) else "no token of its own: see the part before it"
        yield f"{file.name}, {part.name}: {figures}"


def _figures_of(one: "ScoredText") -> str:
    return _figures(one.scores.bits, one.num_bytes, len(one.token_P))


def _figures(bits: float, num_bytes: int, num_tokens: int) -> str:
    from pretrain.inference.scoring import perplexity

    return (
        f"{bits / num_bytes:.4f} bits per byte ({bits:,.1f} bits, {num_bytes:,} bytes, {num_tokens:,} tokens, "
        f"perplexity {perplexity(-bits * log(2.0), num_tokens):,.2f} per token)"
    )


def _context_note(request: ScoreRequest, one: "ScoredText") -> str:
    if one.scores.sees_all:
        return ""
    seen = "a window around it" if request.has_parts else "the text just before it"
    return f"; too long to be seen at once: each token saw {seen}"


def _token_lines(file: TextFile, one: "ScoredText") -> Iterator[str]:
    for token in _tokens(file, one):
        yield f"{token['start_byte']:>9}  {token['bits']:8.3f} bits  {json.dumps(token['text'], ensure_ascii=False)}"


def _tokens(file: TextFile, one: "ScoredText") -> Iterator[dict[str, Any]]:
    for start, num_bytes, log_probability in zip(
        one.start_byte_P.tolist(),
        one.num_bytes_P.tolist(),
        one.scores.log_probability_P.tolist(),
        strict=True,
    ):
        text = file.data[start : start + num_bytes].decode(errors="backslashreplace")
        yield {
            "start_byte": start,
            "num_bytes": num_bytes,
            "bits": -log_probability / log(2.0),
            "log_probability": log_probability,
            "text": text,
        }


def _json_lines(
    request: ScoreRequest,
    files: Sequence[TextFile],
    parts: Sequence[NamedRange],
    scored: Sequence["ScoredText"],
) -> Iterator[str]:
    for file, one in zip(files, scored, strict=True):
        record: dict[str, Any] = {"path": file.name, **_record(one), "sees_all": one.scores.sees_all}
        if parts:
            shares = one.shares([part.bytes for part in parts])
            record["ranges"] = [
                {"start_byte": part.bytes.start, "end_byte": part.bytes.end, **_record(share)}
                for part, share in zip(parts, shares, strict=True)
            ]
        if request.per_token:
            record["tokens"] = [_without_infinities(token) for token in _tokens(file, one)]
        yield json.dumps(record)


def _record(one: "ScoredText") -> dict[str, Any]:
    return _without_infinities(
        {
            "num_bytes": one.num_bytes,
            "num_tokens": len(one.token_P),
            "log_likelihood": one.scores.log_likelihood,
            "bits": one.scores.bits,
            "bits_per_byte": one.bits_per_byte,
            "perplexity_per_token": one.scores.perplexity,
        }
    )


def _without_infinities(record: dict[str, Any]) -> dict[str, Any]:
    """Replace numbers that are not finite, which JSON cannot express, by None."""
    return {
        key: None if isinstance(value, float) and not isfinite(value) else value
        for key, value in record.items()
    }


def score(
    run: Run,
    files: Files,
    lines: Annotated[
        list[str] | None,
        typer.Option(
            "--lines",
            metavar="FIRST-LAST",
            help="Score only these lines (counted from 1), given all others; several: 2,5-7, or repeat it.",
        ),
    ] = None,
    bytes_: Annotated[
        list[str] | None,
        typer.Option(
            "--bytes",
            metavar="START:END",
            help="Score only these bytes (counted from 0, END excluded), given all others; several as for --lines.",
        ),
    ] = None,
    per_token: Annotated[bool, typer.Option("--per-token", help="Also print every token's bits.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON per file.")] = False,
    task: Task = None,
) -> None:
    """Print the exact log-likelihood of files from left to right, or of parts of one file given the rest.

    Bits per byte are the length of the text as the model would compress it. A part consists of all tokens that overlap
    it. Several parts get a line each, given the rest and the parts before it, and one line for all of them.

    \b
    permcode score runs/demo src/*.py
    permcode score runs/demo src/main.py --lines 10-20 --per-token
    permcode score runs/demo src/main.py --lines 10-12,20 --lines 31
    """
    with exit_codes(None, only_shows=True), ends_quietly():
        print_lines(
            score_lines(
                ScoreRequest(task_folder(run, task), files, lines or [], bytes_ or [], per_token, as_json)
            )
        )
