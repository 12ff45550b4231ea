"""The names of an experiment's result files, and rows as lines of JSON."""

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from cluster.storage import write_bytes

RESULT_NAME = "result.json"
"""In a job's folder and in the experiment's; exists once it is done."""
PREDICTIONS_NAME = "predictions.jsonl"


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write all rows or, if that fails, no file. Values that JSON does not support, such as dates, become text."""
    lines = (json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
    # JSON allows a lone surrogate and UTF-8 does not: it is written as JSON's escape.
    write_bytes(path, "".join(lines).encode(errors="backslashreplace"))


def first_rows(path: Path, most: int) -> list[dict[str, Any]]:
    """Return the first `most` rows, or all if the file has fewer."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in islice(lines, most)]
