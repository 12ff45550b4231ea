"""What `permcode score` says: how well the model knows files, or parts of one."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import UserError
from pipeline.exit_codes import warn
from pipeline.text_files import TextFile, read_text_file

if TYPE_CHECKING:
    from pretrain.inference.scored_text import ScoredText
    from pretrain.inference.text_ranges import ByteRange

_LINES = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_BYTES = re.compile(r"(\d{1,18}):(\d{1,18})")


@dataclass(frozen=True)
class ScoreRequest:
    """What to score. `lines` ("10-20", or "7") or `bytes_` ("100:200") choose a part of one file."""

    run: Path
    paths: list[Path]
    lines: str | None
    bytes_: str | None
    per_token: bool
    as_json: bool


def score_lines(request: ScoreRequest) -> Iterator[str]:
    """The lines to print. Raises UserError before the first one."""
    if request.lines is not None and request.bytes_ is not None:
        raise UserError("say which part to score once: --lines or --bytes")
    has_part = request.lines is not None or request.bytes_ is not None
    if has_part and len(request.paths) > 1:
        raise UserError("--lines and --bytes choose a part of one file: give one file")
    files = [read_text_file(path) for path in request.paths]
    part = _part(request, files[0]) if has_part else None

    from pretrain.inference.language_model import PermutationLM

    model = PermutationLM.from_run(request.run, on_damaged=warn)
    if part is not None:
        scored = [model.score_part(files[0].data, part)]
    else:
        scored = model.score([file.data for file in files])
    return _json_lines(request, files, scored) if request.as_json else _lines(request, files, scored)


def _part(request: ScoreRequest, file: TextFile) -> "ByteRange":
    from pretrain.inference.text_ranges import ByteRange, bytes_of_lines

    if request.lines is not None:
        match = _LINES.fullmatch(request.lines)
        if match is None:
            raise UserError(f"--lines {request.lines}: give FIRST-LAST, such as 10-20, or one line's number")
        return bytes_of_lines(file.data, int(match[1]), int(match[2] or match[1]), file.name)
    match = _BYTES.fullmatch(request.bytes_ or "")
    if match is None:
        raise UserError(f"--bytes {request.bytes_}: give START:END, such as 100:200; END is not included")
    part = ByteRange(int(match[1]), int(match[2]))
    part.check_within(len(file.data), file.name)
    return part


def _lines(request: ScoreRequest, files: Sequence[TextFile], scored: Sequence["ScoredText"]) -> Iterator[str]:
    for file, one in zip(files, scored, strict=True):
        if request.per_token:
            yield from _token_lines(file, one)
        yield f"{file.name}: {_figures(one.scores.bits, one.num_bytes, len(one.token_P))}{_what_was_seen(request, one)}"
    if len(files) > 1:
        bits = sum(one.scores.bits for one in scored)
        num_bytes = sum(one.num_bytes for one in scored)
        num_tokens = sum(len(one.token_P) for one in scored)
        yield f"{len(files)} files in all: {_figures(bits, num_bytes, num_tokens)}"


def _figures(bits: float, num_bytes: int, num_tokens: int) -> str:
    from pretrain.inference.scoring import perplexity

    return (
        f"{bits / num_bytes:.4f} bits per byte ({bits:,.1f} bits, {num_bytes:,} bytes, {num_tokens:,} tokens, "
        f"perplexity {perplexity(-bits * log(2.0), num_tokens):,.2f} per token)"
    )


def _what_was_seen(request: ScoreRequest, one: "ScoredText") -> str:
    if one.scores.sees_all:
        return ""
    is_part = request.lines is not None or request.bytes_ is not None
    seen = "a window around it" if is_part else "the text just before it"
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
    request: ScoreRequest, files: Sequence[TextFile], scored: Sequence["ScoredText"]
) -> Iterator[str]:
    for file, one in zip(files, scored, strict=True):
        record: dict[str, Any] = {
            "path": file.name,
            "num_bytes": one.num_bytes,
            "num_tokens": len(one.token_P),
            "log_likelihood": one.scores.log_likelihood,
            "bits": one.scores.bits,
            "bits_per_byte": one.bits_per_byte,
            "perplexity_per_token": one.scores.perplexity,
            "sees_all": one.scores.sees_all,
        }
        if request.per_token:
            record["tokens"] = [_without_infinities(token) for token in _tokens(file, one)]
        yield json.dumps(_without_infinities(record))


def _without_infinities(record: dict[str, Any]) -> dict[str, Any]:
    """JSON has no word for a number that is not finite: null."""
    return {
        key: None if isinstance(value, float) and not isfinite(value) else value
        for key, value in record.items()
    }
