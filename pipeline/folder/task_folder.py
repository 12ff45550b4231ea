"""The finished tasks of a run or an experiment: which one `--task T` means, its best system, what it was judged by."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.errors import UserError
from cluster.storage import fingerprint, read_document
from pipeline.folder.layout import StageFiles
from pipeline.folder.stage_record import read_record

_WHAT_WAS_ASKED = ("key", "source", "suffix", "references", "query", "relevant", "label")
"""Of a row of predictions: all but what the system made of it."""
_ALSO_ASKED = ("texts", "candidates")
"""Where a row has them."""


def task_folder(place: Path, task: str | None) -> Path:
    """The stage folder of the task, the newest if there are several of its name; without a task `place` itself.

    Raises UserError where there is no such finished task.
    """
    if task is None:
        return place
    if not place.is_dir():
        raise UserError(f"{place} is no folder: give a run's or an experiment's")
    found = finished_tasks(place)
    names = {name_of(folder) for folder in found}
    wanted = [folder for folder in found if name_of(folder) == task]
    if not wanted:
        wanted = [folder for folder in found if kind_of(folder) == task]
    if not wanted:
        there_are = f"there are {', '.join(sorted(names))}" if names else "it has none"
        raise UserError(f"{place} has no finished task {task!r}: {there_are}")
    if len({name_of(folder) for folder in wanted}) > 1:
        several = ", ".join(sorted(name_of(folder) for folder in wanted))
        raise UserError(f"{place} has several tasks of the kind {task}: give --task with one of {several}")
    return max(wanted, key=lambda folder: (folder / StageFiles.RESULT).stat().st_mtime_ns)


def finished_tasks(place: Path) -> list[Path]:
    """The folders of all finished tasks that `place` is or holds, sorted."""
    results = [place / StageFiles.RESULT, *sorted(place.glob(f"*/{StageFiles.RESULT}"))]
    return [result.parent for result in results if result.is_file() and _is_of_systems(result)]


def name_of(folder: Path) -> str:
    """A task's name, which its stage folder begins with."""
    return folder.absolute().name.rsplit("-", 1)[0]


def kind_of(folder: Path) -> str:
    """What kind of task it is, such as text_search."""
    record = read_record(folder)
    return name_of(folder) if record is None else str(record.config["task"]["kind"])


def several_tasks(place: Path, folders: list[Path]) -> UserError:
    """What somebody is told who names a folder with several tasks and none of them."""
    names = ", ".join(sorted({name_of(folder) for folder in folders}))
    return UserError(f"{place} holds several tasks: say which with --task, one of {names}")


def best_system(result: Path) -> Path | None:
    """The model folder of the system that did best on the validation split among those that learned.

    `result` is a finished experiment's; None where nothing learned. Of several seeds it is the first.
    """
    summary = read_document(result)
    if not isinstance(summary, dict) or "systems" not in summary:
        return None
    learned = {name: one for name, one in summary["systems"].items() if one["valid"] is not None}
    if not learned:
        return None
    name = max(learned, key=lambda name: learned[name]["valid"])
    seed: int = learned[name]["seeds"][0]
    return model_folder(result.parent, str(name), seed)


def model_folder(experiment: Path, name: str, seed: int) -> Path:
    """Where a system of a finished experiment lies."""
    return experiment / name / f"seed-{seed}" / "model"


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


def _is_of_systems(result: Path) -> bool:
    summary = read_document(result)
    return isinstance(summary, dict) and "systems" in summary
