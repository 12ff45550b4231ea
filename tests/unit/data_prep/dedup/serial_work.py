"""A work folder whose tasks run in this process, one after the other."""

from collections.abc import Callable, Sequence
from pathlib import Path

from cluster.file_tasks import FileTask
from cluster.reporter import Reporter
from data_prep.corpus.work import Work


class SerialWork(Work):
    """Runs tasks from last to first when `backwards`, because their order must not matter."""

    backwards: bool

    def __init__(self, folder: Path, backwards: bool = False) -> None:
        super().__init__(folder, Reporter(), 1)
        object.__setattr__(self, "backwards", backwards)

    def run(
        self,
        label: str,
        function: Callable[..., None],
        tasks: Sequence[FileTask],
        sizes_bytes: Sequence[int],
        note: Callable[[Path], str] = lambda output: "",
    ) -> None:
        assert len(tasks) == len(sizes_bytes)
        assert len({task.name for task in tasks}) == len({task.output for task in tasks}) == len(tasks)
        for task in tasks[::-1] if self.backwards else tasks:
            if not task.output.exists():
                function(*task.arguments, task.output)
