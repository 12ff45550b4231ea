"""The intermediate files of a prep folder, and the tasks that make them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.ray_session import FileTask, run_file_tasks
from cluster.reporter import Reporter
from cluster.storage import fingerprint

MB = 1_000_000


@dataclass(frozen=True)
class Work:
    """Files named after what they depend on: one that is there is right, whoever made it, whenever."""

    folder: Path
    reporter: Reporter
    version: int

    def path(self, kind: str, key: Any, suffix: str) -> Path:
        """Where the output lies that is a function of `key` (JSON-able) and the format's version."""
        return self.folder / f"{kind}-{fingerprint([self.version, key])[:16]}.{suffix}"

    def run(
        self,
        label: str,
        function: Callable[..., None],
        tasks: Sequence[FileTask],
        sizes_bytes: Sequence[int],
        note: Callable[[Path], str] = lambda output: "",
    ) -> None:
        """Run `function(*arguments, output)` of every task that has no output yet, on Ray, under a bar that
        counts `sizes_bytes`; behind it stands the `note` on the last output made. `function` stands at module
        level and writes its output atomically."""
        num_found = sum(task.output.exists() for task in tasks)
        if num_found:
            self.reporter.line(
                f"prep: {label}: going on, {num_found} of {len(tasks)} parts are already there"
            )
        size_of = {task.name: size for task, size in zip(tasks, sizes_bytes, strict=True)}
        with self.reporter.bar(label, total=sum(sizes_bytes) / MB, unit="MB") as bar:
            done_mb = 0.0

            def on_done(task: FileTask) -> None:
                nonlocal done_mb
                done_mb += size_of[task.name] / MB
                bar.update(done_mb, note(task.output))

            run_file_tasks(
                function,
                tasks,
                on_done,
                on_retry=lambda reason: self.reporter.line(f"prep: {label}: {reason}"),
            )
