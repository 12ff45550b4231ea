"""Finds the finished tasks of a run or an experiment, their best systems, and the fingerprint of their test items."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cluster.errors import UserError
from cluster.storage import fingerprint, read_document
from pipeline.folder.layout import StageFiles
from pipeline.folder.stage_record import read_record

_ITEM_KEYS = ("key", "source", "suffix", "references", "query", "relevant", "label")
"""The keys of a row of predictions that belong to the test item, not to the system's answer."""
_OPTIONAL_ITEM_KEYS = ("texts", "candidates")
"""Further such keys, which only some tasks have."""


def task_folder(place: Path, task: str | None) -> Path:
    """Return the stage folder of the task, the newest if there are several; without a task `place` itself.

    `task` is a name or a kind. Raises UserError if there is no such finished task.
    """
    if task is None:
        return place
    if not place.is_dir():
        raise UserError(f"{place} is not a folder: give the folder of a run or an experiment")
    found = finished_tasks(place)
    names = {task_name(folder) for folder in found}
    wanted = [folder for folder in found if task_name(folder) == task]
    if not wanted:
        wanted = [folder for folder in found if task_kind(folder) == task]
    if not wanted:
        there_are = f"there are {', '.join(sorted(names))}" if names else "it has none"
        raise UserError(f"{place} has no finished task {task!r}: {there_are}")
    if len({task_name(folder) for folder in wanted}) > 1:
        several = ", ".join(sorted(task_name(folder) for folder in wanted))
        raise UserError(f"{place} has several tasks of the kind {task}: give --task with one of {several}")
    return max(wanted, key=lambda folder: (folder / StageFiles.RESULT).stat().st_mtime_ns)


def finished_tasks(place: Path) -> list[Path]:
    """Return the folders of all finished tasks that `place` is or holds, sorted."""
    results = [place / StageFiles.RESULT, *sorted(place.glob(f"*/{StageFiles.RESULT}"))]
    return [result.parent for result in results if result.is_file() and _is_of_systems(result)]


def task_name(folder: Path) -> str:
    """Return the name of a task from its stage folder, NAME-KEY."""
    return folder.absolute().name.rsplit("-", 1)[0]


def task_kind(folder: Path) -> str:
    """Return the kind of a task, such as text_search."""
    record = read_record(folder)
    return task_name(folder) if record is None else str(record.config["task"]["kind"])


def several_tasks_error(place: Path, folders: list[Path]) -> UserError:
    """Return the error for a folder with several tasks where the command needs `--task`."""
    names = ", ".join(sorted({task_name(folder) for folder in folders}))
    return UserError(f"{place} holds several tasks: give --task with one of {names}")


def best_system(result: Path) -> Path | None:
    """Return the model folder of the trained system with the best validation result; of several seeds the first.

    `result` is the result file of a finished experiment. Returns None if no system was trained.
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
    """Return the folder of a system of a finished experiment."""
    return experiment / name / f"seed-{seed}" / "model"


def fingerprint_test_items(test_settings: Mapping[str, Any], predictions: Path) -> str:
    """Return a fingerprint that is equal where the task's test settings and the items of the test split are equal.

    Training data, systems and base model make no difference. `test_settings` are those of the task's config,
    `predictions` is the `predictions.jsonl` of any system.
    """
    items = []
    with predictions.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            optional = [row[name] for name in _OPTIONAL_ITEM_KEYS if name in row]
            items.append([row.get(name) for name in _ITEM_KEYS] + optional)
    return fingerprint({"settings": dict(test_settings), "asked": items})


def _is_of_systems(result: Path) -> bool:
    summary = read_document(result)
    return isinstance(summary, dict) and "systems" in summary
