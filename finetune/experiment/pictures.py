"""Pictures of what a system looked at while it wrote, for the systems that can tell."""

from pathlib import Path

from finetune.experiment.exams import Exam, WritingExam
from finetune.systems.base import System
from finetune.systems.writers.alignment import Aligns, draw_alignment

PICTURES_NAME = "alignments"
"""A folder beside the predictions, with KEY.svg for the first test items."""
_NUM_PICTURES = 8


def draw_pictures(system: System, exam: Exam, folder: Path) -> None:
    """How the written text of the first test items is aligned with its source, where the system aligns at all."""
    if not isinstance(system, Aligns) or not isinstance(exam, WritingExam):
        return
    folder.mkdir(exist_ok=True)
    for item in exam.test_items[:_NUM_PICTURES]:
        draw_alignment(system.alignment(item.source), folder / f"{item.key}.svg")
