"""JSON lines: one object per line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster.errors import UserError, first_line
from finetune.formats.files import read_text


def read_jsonl(path: Path) -> Iterator[tuple[str, Any]]:
    """(where it stands, value) of every line that is not blank. UserError naming the line that is no JSON."""
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            yield f"{path} line {number}", parse_json(line, f"{path} line {number}")


def parse_json(text: str, where: str) -> Any:
    """UserError for what is no JSON, and for nesting and numbers beyond what Python reads."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{where} is not JSON ({first_line(error)}): is the file of another format?"
        ) from None
