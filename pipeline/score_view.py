"""What `permcode score` says: how well the model knows files, or parts of one."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import UserError
from pipeline.exit_codes import warn
from pipeline.score_ranges import NamedRange, ranges_of
from pipeline.text_files import TextFile, read_text_file

if TYPE_CHECKING:
    from pretrain.inference.scored_text import ScoredText


@dataclass(frozen=True)
class ScoreRequest:
    """What to score. `lines` ("10-20", or "7", or "2,5-7") or `bytes_` ("100:200") choose parts of one file."""

    run: Path
    paths: list[Path]
    lines: list[str]
    bytes_: list[str]
    per_token: bool
    as_json: bool

    @property
    def has_parts(self) -> bool:
        """Whether not everything is scored."""
        return bool(self.lines or self.bytes_)


def score_lines(request: ScoreRequest) -> Iterator[str]:
    """The lines to print. Raises UserError before the first one."""
    if request.has_parts and len(request.paths) > 1:
        raise UserError("--lines and --bytes choose parts of one file: give one file")
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
        yield f"{file.name}: {_figures_of(one)}{_what_was_seen(request, one)}"
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


def _what_was_seen(request: ScoreRequest, one: "ScoredText") -> str:
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
    """JSON has no word for a number that is not finite: null."""
    return {
        key: None if isinstance(value, float) and not isfinite(value) else value
        for key, value in record.items()
    }
