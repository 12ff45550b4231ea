import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
import requests
from ray.job_submission import JobStatus

from cluster import job_log
from cluster.errors import RetryableError, UserError, first_line
from cluster.job_client import token
from cluster.jobs import submit_job
from cluster.reporter import Reporter
from tests.unit.pipeline.recording_reporter import RecordingReporter


@pytest.fixture(autouse=True)
def _no_token_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)


def test_the_token_is_looked_for_where_ray_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert token() == ""
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("from-home\n")
    assert token() == "from-home"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"RAY_AUTH_TOKEN_PATH=.*none cannot be read"):
        token()


def test_no_token_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown_user(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", unknown_user)
    assert token() == ""


def test_first_line_of_an_error() -> None:
    assert first_line(ValueError("\n one \n two")) == "one"
    assert first_line(ValueError()) == "ValueError"
    raised = "(raised as a result of Query-invoked autoflush; consider a no_autoflush block)\n(sqlite3.Error) no table"
    assert first_line(ValueError(raised)) == "(sqlite3.Error) no table"


class Head:
    """Replaces a cluster: it loses the connection while a job is submitted, which may arrive all the same.

    A job that arrived prints two lines and succeeds.
    """

    def __init__(self, listing: Exception | None = None, arrives: bool = False) -> None:
        self._listing, self._arrives = listing, arrives
        self._jobs: list[SimpleNamespace] = []

    def _do_request(self, method: str, endpoint: str) -> requests.Response:
        response = requests.Response()
        response.status_code = 200
        response._content = json.dumps({"ray_version": ray.__version__}).encode()
        return response

    def list_jobs(self) -> list[SimpleNamespace]:
        if self._listing:
            raise self._listing
        return self._jobs

    def submit_job(self, submission_id: str, **_: Any) -> str:
        if self._arrives:
            self._jobs.append(SimpleNamespace(submission_id=submission_id, status=JobStatus.RUNNING))
        raise requests.ConnectionError("connection reset while uploading the package")

    async def tail_job_logs(self, submission_id: str) -> AsyncIterator[str]:
        yield f"first of {submission_id}\nsec"
        yield "ond\n"

    def get_job_status(self, submission_id: str) -> JobStatus:
        return JobStatus.SUCCEEDED

    def get_job_info(self, submission_id: str) -> SimpleNamespace:
        return SimpleNamespace(status=JobStatus.SUCCEEDED)


def submit(
    head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reporter: Reporter | None = None
) -> int:
    monkeypatch.setattr("ray.job_submission.JobSubmissionClient", lambda address, headers: head)
    with socket.create_server(("127.0.0.1", 0)) as server:
        return submit_job(
            entrypoint=["true"],
            working_folder=tmp_path,
            address=f"http://127.0.0.1:{server.getsockname()[1]}",
            submission_key="abc",
            reporter=reporter or Reporter(),
        )


@pytest.mark.parametrize(
    "head",
    [
        Head(listing=RuntimeError("Request failed with status code 500: internal error.\nand more")),
        Head(listing=requests.ConnectionError("connection refused")),
        Head(),
    ],
)
def test_losing_the_cluster_while_submitting_may_pass(
    head: Head, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = (
        r"^lost the cluster at http://127\.0\.0\.1:\d+ while submitting \(.+\): run the same command again$"
    )
    with pytest.raises(RetryableError, match=message) as caught:
        submit(head, tmp_path, monkeypatch)
    assert caught.value.kind == "lost cluster"


def test_a_job_that_arrived_before_the_connection_was_lost_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporter = RecordingReporter()
    assert submit(Head(arrives=True), tmp_path, monkeypatch, reporter) == 0
    assert reporter.lines[-3:] == ["first of permcode-abc-1", "second", "job permcode-abc-1 succeeded"]


class SilentHead(Head):
    """Its log's connection stays open without a word, as to a machine that lost power; it does not know the job."""

    async def tail_job_logs(self, submission_id: str) -> AsyncIterator[str]:
        yield "begin\n"
        await asyncio.sleep(3600)

    def get_job_status(self, submission_id: str) -> JobStatus:
        raise RuntimeError(f"Request failed with status code 404: Job {submission_id} does not exist")


def test_a_connection_that_stays_open_without_a_word_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_SILENCE_S", "_RECONNECT_S"):
        monkeypatch.setattr(job_log, name, 0.05)
    reporter = RecordingReporter()
    with pytest.raises(RetryableError, match="while following job permcode-abc-1") as caught:
        submit(SilentHead(arrives=True), tmp_path, monkeypatch, reporter)
    assert caught.value.kind == "lost cluster"
    assert reporter.lines.count("begin") == 1


class SilentUntilTheEnd(Head):
    """As a silent head, but the job goes on behind it and ends."""

    num_looks = 0

    async def tail_job_logs(self, submission_id: str) -> AsyncIterator[str]:
        yield "begin\n" if self.num_looks < 3 else "begin\nend\n"
        if self.num_looks < 3:
            await asyncio.sleep(3600)

    def get_job_status(self, submission_id: str) -> JobStatus:
        self.num_looks += 1
        return JobStatus.RUNNING if self.num_looks < 4 else JobStatus.SUCCEEDED


def test_a_lost_connection_is_replaced_while_the_job_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_SILENCE_S", "_RECONNECT_S"):
        monkeypatch.setattr(job_log, name, 0.05)
    reporter = RecordingReporter()
    assert submit(SilentUntilTheEnd(arrives=True), tmp_path, monkeypatch, reporter) == 0
    assert [line for line in reporter.lines if line in ("begin", "end")] == ["begin", "end"]
