"""How often workers that fail are restarted."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray.train.v2.api.exceptions import WorkerGroupError

from cluster.errors import RetryableError, UserError
from cluster.storage import write_json
from pretrain import ray_workers
from pretrain import workers as workers_module
from pretrain.files import PretrainFiles
from pretrain.ray_workers import run_workers
from pretrain.workers import Workers
from tests.unit.pipeline.recording_reporter import RecordingReporter


class Attempts:
    """In place of Ray: each attempt does one thing to the folder and then loses its workers; the last one ends well."""

    def __init__(self, *before_death: Callable[[], None]) -> None:
        self.left = list(before_death)
        self.num_started = 0

    def fit(self) -> None:
        self.num_started += 1
        if self.left:
            self.left.pop(0)()
            raise WorkerGroupError("a worker died", {0: RuntimeError("ActorDied: killed")})


class Finishing:
    """In place of Ray: somebody asks to stop when the last step is done, and the workers finish all the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fit(self) -> None:
        (self._folder / PretrainFiles.STOP).touch()
        write_json(self._folder / PretrainFiles.RESULT, {})


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workers:
    monkeypatch.setattr(workers_module, "uses_gpu", lambda resources: False)
    monkeypatch.setattr(ray_workers, "wait_for_workers", lambda what, sizes, *_: sizes[0])
    monkeypatch.setattr(ray_workers, "watched_nodes", lambda on_change: nullcontext())
    monkeypatch.setattr(ray_workers, "PAUSE_S", 0.0)
    return Workers("finetuning", (1,), 2, tmp_path / "stage")


def run(
    workers: Workers, attempts: Attempts | Finishing, monkeypatch: pytest.MonkeyPatch
) -> RecordingReporter:
    monkeypatch.setattr(Workers, "make_trainer", lambda *_: attempts)
    reporter = RecordingReporter()
    run_workers(workers, lambda settings: None, {}, reporter)
    return reporter


def checkpoint(folder: Path, step: int) -> Callable[[], None]:
    return lambda: write_json(folder / "checkpoints" / f"step-{step:08d}" / "COMMIT.json", {})


def nothing() -> None:
    pass


def test_workers_are_restarted_while_they_make_progress(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish_a_job() -> None:
        write_json(workers.folder / "own" / "seed-0" / "result.json", {})

    attempts = Attempts(checkpoint(workers.folder, 4), checkpoint(workers.folder, 8), finish_a_job)
    reporter = run(workers, attempts, monkeypatch)
    assert attempts.num_started == 4
    assert ["are started again" in line for line in reporter.warnings] == [True] * 3


def test_workers_without_progress_end_the_command(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = Attempts(checkpoint(workers.folder, 4), nothing, nothing, nothing)
    with pytest.raises(RetryableError, match="killed") as caught:
        run(workers, attempts, monkeypatch)
    assert caught.value.kind == "lost worker"
    assert attempts.num_started == 4


class OutOfMemory:
    """In place of Ray: workers that fit when `lanes` of their settings are at most `fitting`."""

    def __init__(self, fitting: int, started: list[int]) -> None:
        self._fitting, self.started = fitting, started

    def make_trainer(self, work: object, settings: dict[str, Any], *more: object) -> "OutOfMemory":
        self.started.append(settings["lanes"])
        return self

    def fit(self) -> None:
        if self.started[-1] > self._fitting:
            error = RuntimeError("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
            raise WorkerGroupError("a worker failed", {0: error})


def halve(settings: dict[str, Any]) -> dict[str, Any] | None:
    return {**settings, "lanes": settings["lanes"] // 2} if settings["lanes"] > 1 else None


def test_workers_that_run_out_of_memory_twice_get_settings_that_need_less(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = OutOfMemory(2, [])
    monkeypatch.setattr(Workers, "make_trainer", lambda _, *given: attempts.make_trainer(*given))
    run_workers(
        replace(workers, with_less_memory=halve), lambda settings: None, {"lanes": 8}, RecordingReporter()
    )
    assert attempts.started == [8, 8, 4, 4, 2]


def test_workers_that_cannot_do_with_less_memory_end_the_command(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = OutOfMemory(0, [])
    monkeypatch.setattr(Workers, "make_trainer", lambda _, *given: attempts.make_trainer(*given))
    with pytest.raises(RetryableError, match="out of memory") as caught:
        run_workers(
            replace(workers, with_less_memory=halve), lambda settings: None, {"lanes": 2}, RecordingReporter()
        )
    assert caught.value.kind == "out of memory"
    assert attempts.started == [2, 2, 1, 1, 1]


@pytest.mark.parametrize(
    ("name", "values", "error", "reported"),
    [
        (PretrainFiles.ERROR, {"message": "losses are not finite"}, UserError, "losses are not finite"),
        (
            PretrainFiles.HANG,
            {"text": "worker 1 hangs"},
            RetryableError,
            "worker 1 hangs; run the same command again",
        ),
        (PretrainFiles.STOP, {}, RetryableError, "failed while they were asked to stop"),
    ],
)
def test_what_has_a_reason_is_not_tried_again(
    workers: Workers,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    values: dict[str, str],
    error: type[Exception],
    reported: str,
) -> None:
    def fail() -> None:
        checkpoint(workers.folder, 4)()
        write_json(workers.folder / name, values)

    attempts = Attempts(fail)
    with pytest.raises(error, match=reported):
        run(workers, attempts, monkeypatch)
    assert attempts.num_started == 1


def test_the_report_of_an_earlier_hang_is_no_reason_and_is_left_for_the_journal(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = workers.folder / PretrainFiles.HANG
    write_json(report, {"text": "worker 1 hangs"})
    attempts = Attempts(nothing)
    run(workers, attempts, monkeypatch)
    assert attempts.num_started == 2
    assert report.exists()


def test_who_asks_to_stop_is_obeyed_though_the_workers_finished_meanwhile(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the command would continue with the next stage. The result stays, the stop request does not."""
    workers.folder.mkdir()
    with pytest.raises(KeyboardInterrupt):
        run(workers, Finishing(workers.folder), monkeypatch)
    left = {path.name for path in workers.folder.iterdir() if not path.name.startswith(".")}
    assert left == {PretrainFiles.RESULT, PretrainFiles.DEVICE}
