"""A JSON file that is one array of objects."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster.errors import UserError
from finetune.formats.files import read_text
from finetune.formats.jsonl import parse_json


def read_json_array(path: Path) -> Iterator[tuple[str, Any]]:
    """(where it stands, value) of every item. UserError when the file is no JSON array."""
    items = parse_json(read_text(path), str(path))
    if not isinstance(items, list):
        raise UserError(f"{path} holds one JSON {type(items).__name__}, not an array of items")
    for number, item in enumerate(items, start=1):
        yield f"{path} item {number}", item
