"""`--task T` behind the folder of a run or an experiment: the finished task of that name or kind."""

from pathlib import Path

from cluster.errors import UserError
from cluster.storage import read_document
from pipeline.stage_record import read_record

_RESULT_NAME = "result.json"


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
    return max(wanted, key=lambda folder: (folder / _RESULT_NAME).stat().st_mtime_ns)


def finished_tasks(place: Path) -> list[Path]:
    """The folders of all finished tasks that `place` is or holds, sorted."""
    results = [place / _RESULT_NAME, *sorted(place.glob(f"*/{_RESULT_NAME}"))]
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


def _is_of_systems(result: Path) -> bool:
    summary = read_document(result)
    return isinstance(summary, dict) and "systems" in summary
