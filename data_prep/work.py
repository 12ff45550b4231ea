"""The intermediate files of a prep folder, and the tasks that make them."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cluster.ray_session import FileTask, run_file_tasks
from cluster.reporter import Reporter
from cluster.storage import fingerprint, sha256_file, write_bytes

MB = 1_000_000
_HASHING_THREADS = 8


@dataclass(frozen=True)
class Work:
    """Files named after what they depend on: one that is there is right, whoever made it, whenever.

    Beside each lies its SHA-256, which is compared when another command finds the file.
    """

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
        found = [task for task in tasks if task.output.exists()]
        if found:
            num_damaged = _remove_damaged([task.output for task in found])
            again = f" ({num_damaged} others are damaged and made again)" if num_damaged else ""
            self.reporter.line(
                f"prep: {label}: going on, {len(found) - num_damaged} of {len(tasks)} parts are already there{again}"
            )
        size_of = {task.name: size for task, size in zip(tasks, sizes_bytes, strict=True)}
        with self.reporter.bar(label, total=sum(sizes_bytes) / MB, unit="MB") as bar:
            done_mb = 0.0

            def on_done(task: FileTask) -> None:
                nonlocal done_mb
                done_mb += size_of[task.name] / MB
                bar.update(done_mb, note(task.output))

            run_file_tasks(
                run_summed,
                [replace(task, arguments=(function, *task.arguments)) for task in tasks],
                on_done,
                on_retry=lambda reason: self.reporter.line(f"prep: {label}: {reason}"),
            )


def run_summed(function: Callable[..., None], *arguments: Any) -> None:
    """A task: `function`, then the checksum of its output, the last of `arguments`."""
    function(*arguments)
    output: Path = arguments[-1]
    write_bytes(_sum_path(output), sha256_file(output).encode())


def _remove_damaged(outputs: Sequence[Path]) -> int:
    """Remove those that have not their checksum, and count them."""
    with ThreadPoolExecutor(_HASHING_THREADS) as threads:
        damaged = [
            path
            for path, is_whole in zip(outputs, threads.map(_is_whole, outputs), strict=True)
            if not is_whole
        ]
    for path in damaged:
        path.unlink()
    return len(damaged)


def _is_whole(output: Path) -> bool:
    sum_path = _sum_path(output)
    return sum_path.is_file() and sum_path.read_bytes() == sha256_file(output).encode()


def _sum_path(output: Path) -> Path:
    return output.with_name(f".{output.name}.sha256")
