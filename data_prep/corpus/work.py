"""The intermediate files of a prep folder, and the tasks that write them."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cluster import metrics_export
from cluster.file_tasks import FileTask, run_file_tasks
from cluster.reporter import Reporter
from cluster.storage import fingerprint, sha256_file, write_bytes

MB = 1_000_000
_HASHING_THREADS = 8


@dataclass(frozen=True)
class Work:
    """Files named by what they depend on, so that an existing file can always be reused.

    Beside each is its SHA-256, which is compared when another command finds the file.
    """

    folder: Path
    reporter: Reporter
    version: int

    def path(self, kind: str, key: Any, suffix: str) -> Path:
        """Return the path of an output that depends on `key` (JSON-able) and the format's version."""
        return self.folder / f"{kind}-{fingerprint([self.version, key])[:16]}.{suffix}"

    def run(
        self,
        label: str,
        function: Callable[..., None],
        tasks: Sequence[FileTask],
        sizes_bytes: Sequence[int],
        note: Callable[[Path], str] = lambda output: "",
    ) -> None:
        """Run `function(*arguments, output)` of every task without an output, on Ray, with a progress bar.

        The bar counts `sizes_bytes` and shows the `note` on the last output. `function` must be at module level and
        write its output atomically. Existing outputs are verified; damaged ones are made again.
        """
        found = [task for task in tasks if task.output.exists()]
        if found:
            num_damaged = _remove_damaged([task.output for task in found])
            again = f" ({num_damaged} damaged parts are made again)" if num_damaged else ""
            self.reporter.line(
                f"prep: {label}: resuming, {len(found) - num_damaged} of {len(tasks)} parts are done{again}"
            )
        size_of = {task.name: size for task, size in zip(tasks, sizes_bytes, strict=True)}
        with self.reporter.bar(label, total=sum(sizes_bytes) / MB, unit="MB") as bar:
            done_mb, num_done = 0.0, 0

            def on_done(task: FileTask) -> None:
                nonlocal done_mb, num_done
                done_mb += size_of[task.name] / MB
                num_done += 1
                metrics_export.show(metrics_export.QUEUE_DONE, num_done)
                metrics_export.show(metrics_export.QUEUE_LEFT, len(tasks) - num_done)
                bar.update(done_mb, note(task.output))

            run_file_tasks(
                run_with_checksum,
                [replace(task, arguments=(function, *task.arguments)) for task in tasks],
                on_done,
                on_retry=lambda reason: self.reporter.line(f"prep: {label}: {reason}"),
            )


def run_with_checksum(function: Callable[..., None], *arguments: Any) -> None:
    """Task: run `function`, then write the checksum of its output, the last of `arguments`."""
    function(*arguments)
    output: Path = arguments[-1]
    write_bytes(_checksum_path(output), sha256_file(output).encode())


def _remove_damaged(outputs: Sequence[Path]) -> int:
    """Remove the outputs whose checksum is missing or differs, and return their number."""
    with ThreadPoolExecutor(_HASHING_THREADS) as threads:
        damaged = [
            path
            for path, is_valid in zip(outputs, threads.map(_has_valid_checksum, outputs), strict=True)
            if not is_valid
        ]
    for path in damaged:
        path.unlink()
    return len(damaged)


def _has_valid_checksum(output: Path) -> bool:
    sum_path = _checksum_path(output)
    return sum_path.is_file() and sum_path.read_bytes() == sha256_file(output).encode()


def _checksum_path(output: Path) -> Path:
    return output.with_name(f".{output.name}.sha256")
