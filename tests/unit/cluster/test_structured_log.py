"""Structured logs: fields, files that are only appended to, errors and messages of libraries."""

import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from cluster import structured_log
from cluster.reporter import Reporter
from cluster.structured_log import (
    Place,
    at,
    at_step,
    attempt_logs,
    command_log,
    event,
    job_id,
    logged_to,
    worker_log,
)

FIELDS = {
    *("time", "level", "message", "run", "job", "stage", "system", "rank", "attempt", "step", "host", "pid"),
}


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_fifty() -> None:
    for _ in range(50):
        event("x" * 5000)


def test_every_line_has_the_documented_fields_and_says_where_the_process_was(tmp_path: Path) -> None:
    path = tmp_path / "a" / "events.jsonl"
    with logged_to(path, Place(run="/runs/a", job="7", stage="pretrain", rank=3, attempt=2)):
        event("begins")
        at_step(41)
        with at(system="gpt/seed-0"):
            event("é\nsecond line", "warning")
        event("ends")
    first, second, third = read(path)
    assert set(first) == set(second) == FIELDS
    assert structured_log.__doc__ is not None
    assert all(f"{name}" in structured_log.__doc__ for name in FIELDS)
    assert (first["run"], first["job"], first["stage"], first["rank"], first["attempt"]) == (
        *("/runs/a", "7", "pretrain"),
        *(3, 2),
    )
    assert (first["step"], second["step"]) == (None, 41)
    assert (second["system"], second["level"], second["message"]) == (
        "gpt/seed-0",
        "warning",
        "é\nsecond line",
    )
    assert third["system"] == ""
    assert third["pid"] == os.getpid()
    assert first["time"].endswith("Z")
    assert structured_log.place() == Place()


def test_old_content_is_kept_and_nothing_is_written_without_a_log(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for number in range(2):
        with logged_to(path, Place()):
            event(f"event {number}")
    event("nowhere")
    assert [one["message"] for one in read(path)] == ["event 0", "event 1"]


def test_a_process_without_events_leaves_no_file(tmp_path: Path) -> None:
    with logged_to(tmp_path / "events.jsonl", Place()):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_error_that_ends_the_block_is_the_last_event(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with pytest.raises(ValueError, match="bad"), logged_to(path, Place(rank=1)):
        raise ValueError("bad\nnumber")
    (last,) = read(path)
    assert (last["level"], last["message"], last["rank"]) == ("error", "ValueError: bad number", 1)
    assert "raise ValueError" in last["traceback"]


def test_warnings_of_libraries_are_events_until_the_log_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    logger = logging.getLogger("some.library")
    with logged_to(path, Place()):
        logger.warning("cannot %s", "connect")
        logger.info("chatter")
    logger.warning("afterwards")
    (line,) = read(path)
    assert (line["message"], line["level"], line["logger"]) == ("cannot connect", "warning", "some.library")


def test_lines_of_many_threads_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with logged_to(path, Place()):
        threads = [threading.Thread(target=write_fifty) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [one["message"] for one in read(path)] == ["x" * 5000] * 400


def test_what_the_reporter_says_is_an_event(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with logged_to(path, Place(stage="prep")):
        Reporter().line("12 files")
        Reporter().warn("one is damaged")
    assert [(one["message"], one["level"], one["stage"]) for one in read(path)] == [
        ("12 files", "info", "prep"),
        ("one is damaged", "warning", "prep"),
    ]


def test_files_are_named_by_what_writes_them(tmp_path: Path) -> None:
    assert worker_log(attempt_logs(tmp_path / "pretrain-0123456789ab", 3), 12) == (
        tmp_path / "logs/events/pretrain-0123456789ab/attempt-0003/rank-00012.jsonl"
    )
    assert command_log(tmp_path / "logs").name.endswith(f"-{os.getpid()}.jsonl")


def test_the_job_is_ray_s_or_slurm_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_JOB_CONFIG_JSON_ENV_VAR", raising=False)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert job_id() == ""
    monkeypatch.setenv("SLURM_JOB_ID", "117")
    assert job_id() == "117"
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", '{"metadata": {"job_submission_id": "permcode-1-1"}}')
    assert job_id() == "permcode-1-1"
