"""The forms in which `permcode scan` reports surprising lines: a table, JSON, SARIF 2.1.0."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pipeline.folder.user_files import TextFile
from pretrain.inference.scan_records import bits, line_figures, line_record, written_record

if TYPE_CHECKING:
    from pretrain.inference.results import Completion
    from pretrain.inference.scanned_text import ScannedLine, ScannedText

_SHOWN_CHARACTERS = 88
_RULE = "surprising-line"
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


@dataclass(frozen=True)
class Surprising:
    """A line that is reported, with what the model would write instead (None: too long a line).

    `false_alarm_rate` is the lowest rate at which it is reported; None without held-out lines.
    """

    line: "ScannedLine"
    instead: "Completion | None"
    false_alarm_rate: float | None


@dataclass(frozen=True)
class ScannedFile:
    """A scanned file and the lines that are reported, the most surprising first."""

    file: TextFile
    scan: "ScannedText"
    reported: Sequence[Surprising]

    def code(self, number: int) -> str:
        """Return a line without its line end."""
        return self.file.data.split(b"\n")[number - 1].decode(errors="replace").removesuffix("\r")


@dataclass(frozen=True)
class Limit:
    """What is reported: lines above `threshold_bits`, chosen for a false-alarm rate, or (None) the top ones."""

    false_alarm_rate: float | None
    threshold_bits: float | None
    num_held_out_lines: int = 0


def table_lines(files: Sequence[ScannedFile], limit: Limit) -> Iterator[str]:
    """Yield the lines of a table per file: the figures of a line, its code, and what the model would write."""
    for number, one in enumerate(files):
        if number:
            yield ""
        yield f"{one.file.name}: {_summary(one, limit)}"
        if not one.scan.sees_all:
            yield "  (too long to be seen at once: each line saw a window around it and the memory of the text before)"
        if one.reported:
            yield "  line  bits given rest  given before  code"
        for found in one.reported:
            line = found.line
            yield (
                f"{line.number:>6}  {line.surprise_bits:15.2f}"
                f"  {bits(line.log_probability_before):12.2f}  {_cut(one.code(line.number))}"
            )
            if found.instead is not None:
                yield f"{'':6}  {bits(found.instead.log_likelihood):15.2f}  {'instead':>12}  {_written(one, found)}"


def _summary(one: ScannedFile, limit: Limit) -> str:
    num_lines = len(one.scan.lines)
    if limit.threshold_bits is None:
        return f"the {len(one.reported):,} most surprising of {num_lines:,} lines"
    return (
        f"{len(one.reported):,} of {num_lines:,} lines have more than {limit.threshold_bits:.2f} bits given the rest, "
        f"as {limit.false_alarm_rate:.2%} of {limit.num_held_out_lines:,} held-out lines do"
    )


def _written(one: ScannedFile, found: Surprising) -> str:
    assert found.instead is not None
    if found.instead.data == one.file.data[found.line.bytes.start : found.line.bytes.end]:
        return "(the same)"
    return _cut(found.instead.text.rstrip("\r\n").replace("\n", "\\n"))


def _cut(text: str) -> str:
    text = text.replace("\r", "\\r")
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."


def json_lines(files: Sequence[ScannedFile], limit: Limit) -> Iterator[str]:
    """Yield a line of JSON per file, with the figures of all its lines, and `instead` for those that are reported."""
    for one in files:
        reported = {found.line.number: found for found in one.reported}
        yield json.dumps(
            {
                "path": one.file.name,
                "sees_all": one.scan.sees_all,
                "num_tokens": one.scan.num_tokens,
                "false_alarm_rate": limit.false_alarm_rate,
                "threshold_bits": limit.threshold_bits,
                "reported": [found.line.number for found in one.reported],
                "lines": [_record(line, reported.get(line.number)) for line in one.scan.lines],
            }
        )


def _record(line: "ScannedLine", found: Surprising | None) -> dict[str, Any]:
    record = line_record(line)
    if found is not None:
        record["lowest_false_alarm_rate"] = found.false_alarm_rate
        if found.instead is not None:
            record["instead"] = written_record(found.instead)
    return record


def sarif(files: Sequence[ScannedFile], limit: Limit) -> dict[str, Any]:
    """Return a SARIF 2.1.0 log: a result per reported line, with what the model would write as a fix."""
    rule = {
        "id": _RULE,
        "name": "SurprisingLine",
        "shortDescription": {
            "text": "A line that surprises a language model which sees the rest of the file."
        },
        "fullDescription": {
            "text": "The model's exact probability of the line, given the rest of the file, is low. This is no proof "
            "of a mistake."
        },
        "defaultConfiguration": {"level": "note"},
    }
    driver = {"name": "permcode", "version": metadata.version("permcode"), "rules": [rule]}
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "results": [_result(one, found) for one in files for found in one.reported],
                "properties": {
                    "falseAlarmRate": limit.false_alarm_rate,
                    "thresholdBits": limit.threshold_bits,
                },
            }
        ],
    }


def _result(one: ScannedFile, found: Surprising) -> dict[str, Any]:
    line, code = found.line, one.code(found.line.number)
    artifact = {"uri": _uri(one.file.name)}
    region = {"startLine": line.number, "startColumn": 1, "endLine": line.number, "endColumn": len(code) + 1}
    text = f"This line has {line.surprise_bits:.1f} bits given the rest of the file, and "
    text += f"{bits(line.log_probability_before):.1f} given the text before it."
    result: dict[str, Any] = {
        "ruleId": _RULE,
        "ruleIndex": 0,
        "level": "note",
        "message": {"text": text},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": artifact,
                    "region": {**region, "snippet": {"text": code}},
                }
            }
        ],
        "properties": line_figures(line),
    }
    if found.false_alarm_rate is not None:
        result["rank"] = 100.0 * (1.0 - found.false_alarm_rate)
    written = None if found.instead is None else found.instead.text.rstrip("\r\n")
    # A token may reach into the line from the one before; then the line is not what was written anew.
    is_whole = line.bytes.start == 0 or one.file.data[line.bytes.start - 1] == ord("\n")
    if written is not None and written != code and is_whole:
        replacement = {"deletedRegion": region, "insertedContent": {"text": written}}
        result["fixes"] = [
            {
                "description": {"text": "What the model would write in this place."},
                "artifactChanges": [{"artifactLocation": artifact, "replacements": [replacement]}],
            }
        ]
    return result


def _uri(name: str) -> str:
    """Return a file's name as a URI reference: relative paths stay relative."""
    path = Path(name)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix(), errors="surrogateescape")
