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
_ABOUT_LEARNING = {
    "folder", "train", "valid", "test", "max_train", "max_valid", "max_test", "bugs", "train_splits", "literals",
    "base", "codes", "items", "answers", "workers",
}  # fmt: skip
"""Keys of tasks that the asked items show themselves, or that do not change what is asked."""


def judged_fingerprint(task: Mapping[str, Any], predictions: Path) -> str:
    """Equal where the task's settings and the items of the test split are, whatever was learnt, by whom, from which
    base model. `task` is the task's config; `predictions` any system's `predictions.jsonl`.
    """
    asked = []
    with predictions.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            also = [row[name] for name in _ALSO_ASKED if name in row]
            asked.append([row.get(name) for name in _WHAT_WAS_ASKED] + also)
    settings = {name: value for name, value in task.items() if name not in _ABOUT_LEARNING}
    return fingerprint({"settings": settings, "asked": asked})
