"""Which items an experiment was judged by: results on the same ones can be compared, others cannot."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.storage import fingerprint

_WHAT_WAS_ASKED = ("key", "source", "suffix", "references", "query", "relevant", "label")
"""Of a row of predictions: all but what the system made of it."""
_ALSO_ASKED = ("texts", "candidates")
"""Where a row has them."""


def judged_fingerprint(test_settings: Mapping[str, Any], predictions: Path) -> str:
    """Return a fingerprint that is equal where the task's test settings and the items of the test split are equal.

    What was learnt, by which system and from which base model has no part in it. `test_settings` are those of the
    task's config, `predictions` any system's `predictions.jsonl`.
    """
    asked = []
    with predictions.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            also = [row[name] for name in _ALSO_ASKED if name in row]
            asked.append([row.get(name) for name in _WHAT_WAS_ASKED] + also)
    return fingerprint({"settings": dict(test_settings), "asked": asked})
