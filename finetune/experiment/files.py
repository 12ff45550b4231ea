"""Names of what an experiment leaves, and rows as lines of JSON."""

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from cluster.storage import write_bytes

RESULT_NAME = "result.json"
"""In a job's folder and in the experiment's: there once it is done."""
PREDICTIONS_NAME = "predictions.jsonl"


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """All of them or, when it fails, no file. What JSON has no form for, as dates, is written as text."""
    lines = (json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
    # Half of a surrogate pair, which JSON has and UTF-8 has not, becomes JSON's escape of it.
    write_bytes(path, "".join(lines).encode(errors="backslashreplace"))


def first_rows(path: Path, most: int) -> list[dict[str, Any]]:
    """Return at most `most` rows from the beginning."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in islice(lines, most)]
