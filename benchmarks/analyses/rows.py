"""Reading of the rows of a predictions.jsonl."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield one row per item."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
