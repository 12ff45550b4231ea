"""Images of the alignment of written texts with their sources, for systems that align."""

import re
from pathlib import Path

from finetune.modalities.base import Evaluation
from finetune.modalities.writing import WritingEvaluation
from finetune.systems.base import System
from finetune.systems.writers.alignment import HasAlignment, draw_alignment

PICTURES_NAME = "alignments"
"""A folder next to the predictions, with NUMBER-KEY.svg for the first test items; special characters in KEY are `_`."""
_NUM_PICTURES = 8
_MAX_KEY_CHARS = 100


def draw_pictures(system: System, evaluation: Evaluation, folder: Path) -> None:
    """Draw how the written texts of the first test items align with their sources, if the system aligns."""
    if not isinstance(system, HasAlignment) or not isinstance(evaluation, WritingEvaluation):
        return
    folder.mkdir(parents=True, exist_ok=True)
    for number, item in enumerate(evaluation.test_items[:_NUM_PICTURES], start=1):
        # Keys are arbitrary text: paths of a corpus, or any value of the task's files.
        key = re.sub(r"[^\w.-]+", "_", item.key)[-_MAX_KEY_CHARS:]
        draw_alignment(system.alignment(item.source), folder / f"{number}-{key}.svg")
