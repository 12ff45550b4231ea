"""Runs as jobs on a Ray cluster: pack the code, submit it once, follow the log to the end.

A job keeps everything that it needs to resume in its output folder, so the same entrypoint can be started again at any
time; `cluster.keep_alive` does that from outside the cluster, because a job dies with its head.
"""

import asyncio
import importlib.util
import logging
import os
import platform
import re
import shlex
import shutil
import socket
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cluster.errors import RetryableError, UserError, first_line
from cluster.keep_alive import INTERRUPTED_EXIT_CODE
from cluster.reporter import Reporter

PACKAGES = ("cluster", "data_prep", "pretrain", "finetune", "pipeline")
"""Our packages that a job needs; Ray puts their parent folder on every worker's path."""

STOP_WAIT_S = 600
"""How long a stopped job may take for its checkpoint before Ray kills it; Ray's own 3 s are too short."""
_STOP_WAIT_VARIABLE = "RAY_JOB_STOP_WAIT_TIME_S"
_ATTEMPT = re.compile(r"permcode-.+-\d+")
_STAGE = re.compile(r"(\w+): (?:runs|resumes) \(")
_PROGRESS = re.compile(r"^[\w ]+: [\d.]+[kMGT]?/[\d.]+[kMGT]? \w+")
_KEY_CHARS = 12
_NOISY_LOGGERS = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)
"""These set their own level at import and log every upload to the terminal."""
_NUM_RECONNECTS = 10
_PROBE_TIMEOUT_S = 10.0
_MAX_MESSAGE_CHARS = 1000
_OWN_LINES = ("permcode: error:", "permcode: failed")
_RECONNECT_S = 3.0
_SILENCE_S = 20.0
"""After so long without a line the connection is replaced: that to a head without power stays open for ever."""


@dataclass(frozen=True)
class JobLine:
    """A job of permcode on a cluster."""

    name: str
    """permcode-KEY-ATTEMPT."""
    state: str
    stage: str
    progress: str
    """The last line of progress in the log."""
    started_s: float | None
    """Seconds since the epoch."""

    @property
    def attempt(self) -> int:
        return int(self.name.rpartition("-")[2])


def list_jobs(address: str) -> list[JobLine]:
    """Return the jobs of permcode on the cluster at `address`, the newest last; errors as of `submit_job`."""
    client = _connect(address)
    with _lost_cluster_is_retryable(address):
        jobs = [job for job in client.list_jobs() if _ATTEMPT.fullmatch(job.submission_id or "")]
        return [_job_line(client, job) for job in sorted(jobs, key=lambda job: job.start_time or 0)]


def show_log(address: str, job: str, follow: bool, reporter: Reporter) -> int:
    """Print a job's log, to its end with `follow`; return the job's exit status, or 0 without `follow`."""
    client = _connect(address)
    _check_job(client, address, job)
    with _lost_cluster_is_retryable(address):
        if follow:
            asyncio.run(_follow_log(client, job, address, reporter))
            return _exit_code(client, job, reporter)
        for line in client.get_job_logs(job).splitlines():
            reporter.line(line)
        return 0


def stop_job(address: str, job: str, reporter: Reporter) -> None:
    """Ask a job to stop after a checkpoint, and wait for its end.

    Ray kills a job that takes longer than STOP_WAIT_S, which `submit_job` sets for every job.
    """
    client = _connect(address)
    _check_job(client, address, job)
    with _lost_cluster_is_retryable(address):
        if client.get_job_status(job).is_terminal():
            reporter.line(f"job {job} has ended before: {client.get_job_status(job).value.lower()}")
            return
        client.stop_job(job)
        reporter.line(f"job {job} is asked to stop; waiting for its checkpoint")
        while not client.get_job_status(job).is_terminal():
            time.sleep(1.0)
        lines = client.get_job_logs(job).splitlines()
        written = [line for line in lines if "checkpoint step-" in line and " written in " in line]
        reporter.line(f"job {job} has stopped; {written[-1] if written else 'it had no checkpoint to write'}")


def submit_job(
    *,
    entrypoint: Sequence[str],
    working_folder: Path,
    address: str,
    submission_key: str,
    reporter: Reporter,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run `entrypoint` on the cluster at `address` (http://HEAD:8265), follow its log and return its exit status.

    The entrypoint's `python` is the first on the PATH that the cluster's Ray was started with. The job's id is
    permcode-KEY-ATTEMPT, where KEY is the first 12 characters of `submission_key`. If a job with this key is pending
    or running, it is followed and no second one is submitted. Each process of the job starts in a copy of
    `working_folder`. Ctrl-C stops the following, not the job. UserError for a cluster that refuses the token, speaks
    another protocol or has another version of Ray, RetryableError for one that does not answer.
    """
    client = _connect(address)
    _check_version(client, address, reporter)
    try:
        variables = {_STOP_WAIT_VARIABLE: str(STOP_WAIT_S), **(environment or {})}
        submission_id = _submit_once(client, entrypoint, working_folder, submission_key, variables, reporter)
    except (RuntimeError, OSError) as error:
        raise RetryableError(
            f"lost the cluster at {address} while submitting ({first_line(error)}): run the same command again",
            "lost cluster",
        ) from error
    reporter.line(f"job {submission_id} at {address}; its log follows")
    try:
        asyncio.run(_follow_log(client, submission_id, address, reporter))
        return _exit_code(client, submission_id, reporter)
    except KeyboardInterrupt:
        reporter.line(
            f"no longer following; the job continues. Follow it with the same command again, or "
            f"`ray job logs --address {address} --follow {submission_id}`; "
            f"stop it with `ray job stop --address {address} {submission_id}`"
        )
        return INTERRUPTED_EXIT_CODE
    except (RuntimeError, OSError) as error:
        raise RetryableError(
            f"lost the cluster at {address} while following job {submission_id} ({first_line(error)}): "
            "the same command follows it again",
            "lost cluster",
        ) from error


@contextmanager
def pack_code(extra_files: Mapping[str, Path] | None = None) -> Iterator[Path]:
    """Copy our packages, and `extra_files` under the given names, to a temporary folder; yield that folder.

    The packages are copied from where they are imported: a source tree or an installed wheel.
    """
    with tempfile.TemporaryDirectory(prefix="permcode-job-") as folder:
        root = Path(folder)
        for name in PACKAGES:
            spec = importlib.util.find_spec(name)
            if spec is None or not spec.submodule_search_locations:
                raise UserError(f"package {name} cannot be found: install permcode again")
            shutil.copytree(
                spec.submodule_search_locations[0], root / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        for name, path in (extra_files or {}).items():
            shutil.copyfile(path, root / name)
        yield root


def _connect(address: str) -> Any:
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    if not address.startswith(("http://", "https://")):
        raise UserError(f"--address {address} is not a Ray dashboard: give http://HEAD:8265")
    for name in _NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
    token = _token()
    headers = {"Authorization": f"Bearer {token}"} if token else None
    try:
        return JobSubmissionClient(address, headers=headers)
    except AuthenticationError as error:
        if token:
            raise UserError(
                f"the cluster at {address} refuses the token: set RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) "
                "to its own, as `ray get-auth-token` prints it on the head"
            ) from error
        raise UserError(
            f"the cluster at {address} asks for a token: set RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH to "
            "a file with it; `ray get-auth-token` prints it on the head"
        ) from error
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        _refuse_other_protocol(address)
        raise RetryableError(
            f"no Ray dashboard answers at {address} ({first_line(error)}): check the address, and that the "
            "head was started with --include-dashboard=true and a --dashboard-host you can reach",
            "lost cluster",
        ) from error


def _refuse_other_protocol(address: str) -> None:
    """Raise UserError if the server answers with TLS where http was given, or without it where https was."""
    url = urlsplit(address)
    try:
        port = url.port or (443 if url.scheme == "https" else 80)
        with socket.create_connection((url.hostname or "", port), timeout=_PROBE_TIMEOUT_S) as connection:
            connection.settimeout(_PROBE_TIMEOUT_S)
            try:
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                with context.wrap_socket(connection, server_hostname=url.hostname):
                    speaks_tls = True
            except ssl.SSLError as error:
                if error.reason not in (
                    "WRONG_VERSION_NUMBER",
                    "RECORD_LAYER_FAILURE",
                    "PACKET_LENGTH_TOO_LONG",
                ):
                    return
                speaks_tls = False
    except (OSError, ValueError):
        return  # nobody answers, which the caller reports
    other = address.partition("://")[2]
    if url.scheme == "https" and not speaks_tls:
        raise UserError(f"the server at {address} does not speak TLS: give http://{other}")
    if url.scheme == "http" and speaks_tls:
        raise UserError(f"the server at {address} speaks TLS: give https://{other}")
    if url.scheme == "https":
        try:
            with socket.create_connection((url.hostname or "", port), timeout=_PROBE_TIMEOUT_S) as connection:
                ssl.create_default_context().wrap_socket(connection, server_hostname=url.hostname).close()
        except ssl.SSLCertVerificationError as error:
            raise UserError(
                f"the certificate of {address} is not trusted ({error.verify_message}): set REQUESTS_CA_BUNDLE and "
                "SSL_CERT_FILE to the file of its authority's certificate"
            ) from error
        except OSError:
            return


def _check_version(client: Any, address: str, reporter: Reporter) -> None:
    """Raise UserError if the cluster's Ray is of another version than this one: jobs would fail in odd ways.

    Another version of Python is only named, because a job runs with the cluster's.
    """
    here, here_python = metadata.version("ray"), platform.python_version()
    there, there_python = _versions_of(client)
    if there != here:
        raise UserError(
            f"the cluster at {address} runs Ray {there}, this command Ray {here}: install ray=={there} here, or "
            f"start the cluster with {here}"
        )
    if there_python not in (here_python, ""):
        reporter.warn(
            f"the cluster at {address} runs Python {there_python}, this command {here_python}: the job runs with the "
            "cluster's"
        )


@contextmanager
def _lost_cluster_is_retryable(address: str) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, OSError) as error:
        raise RetryableError(
            f"lost the cluster at {address} ({first_line(error)}): run the same command again", "lost cluster"
        ) from error


def _check_job(client: Any, address: str, job: str) -> None:
    with _lost_cluster_is_retryable(address):
        names = [known.submission_id for known in client.list_jobs()]
    if job not in names:
        raise UserError(f"the cluster at {address} has no job {job}: `permcode jobs` lists them")


def _job_line(client: Any, job: Any) -> JobLine:
    name = str(job.submission_id)
    stage, progress = "", ""
    for line in client.get_job_logs(name).splitlines():
        if found := _STAGE.match(line):
            stage = found[1]
        elif _PROGRESS.search(line):
            progress = line.partition(": ")[2]
    started_s = job.start_time / 1000 if job.start_time else None
    return JobLine(name, str(job.status.value).lower(), stage, progress, started_s)


def _versions_of(client: Any) -> tuple[str, str]:
    """Return the versions of Ray and Python that the dashboard names; "" for a Python that it does not name.

    Its client has no public calls for that (Ray 2.60).
    """
    response = client._do_request("GET", "/api/version")
    response.raise_for_status()
    described = client._do_request("GET", "/api/v0/cluster_metadata")
    python = described.json().get("data", {}).get("pythonVersion", "") if described.ok else ""
    return str(response.json()["ray_version"]), str(python)


def _token() -> str:
    """Return the user's token, read from where Ray looks for it; empty if there is none."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() == "disabled":
        return ""
    if token := os.environ.get("RAY_AUTH_TOKEN", "").strip():
        return token
    named = os.environ.get("RAY_AUTH_TOKEN_PATH", "")
    try:
        path = Path(named) if named else Path.home() / ".ray" / "auth_token"
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        if named:
            raise UserError(
                f"RAY_AUTH_TOKEN_PATH={named} cannot be read ({error.strerror}): correct it"
            ) from error
        return ""
    except RuntimeError:  # no home folder
        return ""


def _submit_once(
    client: Any,
    entrypoint: Sequence[str],
    working_folder: Path,
    submission_key: str,
    environment: dict[str, str],
    reporter: Reporter,
) -> str:
    """Return the id of the job that does the work: an active one with this key, or a new one."""
    prefix = f"permcode-{submission_key[:_KEY_CHARS]}-"
    active, num_attempts = _known_jobs(client, prefix)
    if active:
        reporter.line(f"job {active} already does this: following it")
        return active
    wanted = f"{prefix}{num_attempts + 1}"
    runtime_env = {"working_dir": str(working_folder), "env_vars": environment}
    try:
        return str(
            client.submit_job(
                entrypoint=shlex.join(entrypoint), submission_id=wanted, runtime_env=runtime_env
            )
        )
    except (RuntimeError, OSError) as error:
        # Another process may have just submitted it, or ours arrived before the connection was lost.
        if _known_jobs(client, prefix)[0] == wanted:
            return wanted
        if isinstance(error, OSError):
            raise
        raise UserError(f"the cluster refused job {wanted}: {first_line(error)}") from error


def _known_jobs(client: Any, prefix: str) -> tuple[str, int]:
    """Return the pending or running job with this prefix ("" if none) and the highest attempt so far."""
    active, highest = "", 0
    for job in client.list_jobs():
        name = job.submission_id or ""
        attempt = name.removeprefix(prefix)
        if not name.startswith(prefix) or not attempt.isdigit():
            continue
        highest = max(highest, int(attempt))
        if not job.status.is_terminal():
            active = name
    return active, highest


async def _follow_log(client: Any, submission_id: str, address: str, reporter: Reporter) -> None:
    """Print every complete log line once, until the job has ended; reconnect when the connection is lost."""
    num_printed_chars = 0
    failures = 0
    pending = ""
    while True:
        num_read_chars = 0
        try:
            async for chunk in _log_chunks(client, submission_id):
                # A new connection sends the log from its beginning.
                fresh = chunk[max(0, num_printed_chars - num_read_chars) :]
                num_read_chars += len(chunk)
                if not fresh:
                    continue
                num_printed_chars += len(fresh)
                failures = 0
                *lines, pending = (pending + fresh).split("\n")
                for line in lines:
                    reporter.line(line.rstrip("\r"))
            if _has_ended(client, submission_id, address):
                break
        except (ConnectionError, RuntimeError, OSError):
            failures += 1
            if failures > _NUM_RECONNECTS:
                raise
        await asyncio.sleep(_RECONNECT_S)
    if pending:
        reporter.line(pending)


async def _log_chunks(client: Any, submission_id: str) -> AsyncIterator[str]:
    """Yield the log from its beginning, until the job or the connection ends or nothing comes for a while."""
    import aiohttp

    chunks = client.tail_job_logs(submission_id)
    following: asyncio.Task[str] | None = None
    try:
        while True:
            following = asyncio.ensure_future(anext(chunks))
            done, _ = await asyncio.wait({following}, timeout=_SILENCE_S)
            if not done:
                return
            yield following.result()
    except StopAsyncIteration:
        return
    except aiohttp.ClientError as error:
        raise ConnectionError(str(error)) from error
    finally:
        if following is not None and not following.done():
            following.cancel()
            await asyncio.wait({following})


def _has_ended(client: Any, submission_id: str, address: str) -> bool:
    """Return whether the job has ended. Ray's client would wait for minutes for a machine that is gone."""
    url = urlsplit(address)
    port = url.port or (443 if url.scheme == "https" else 80)
    socket.create_connection((url.hostname or "", port), timeout=_PROBE_TIMEOUT_S).close()
    return bool(client.get_job_status(submission_id).is_terminal())


def _cause(message: str) -> str:
    """Return the line of our own that ended the job, from Ray's message with the end of the log; else its beginning."""
    own = [line.strip() for line in message.splitlines() if line.strip().startswith(_OWN_LINES)]
    return own[-1] if own else " ".join(message.split())[:_MAX_MESSAGE_CHARS]


def _exit_code(client: Any, submission_id: str, reporter: Reporter) -> int:
    """Wait for the job's end, report it and return the job's own exit status."""
    info = client.get_job_info(submission_id)
    while not info.status.is_terminal():
        time.sleep(_RECONNECT_S)
        info = client.get_job_info(submission_id)
    status = str(info.status.value)
    if status == "SUCCEEDED":
        reporter.line(f"job {submission_id} succeeded")
        return 0
    if status == "STOPPED":
        reporter.warn(f"job {submission_id} was stopped")
        return INTERRUPTED_EXIT_CODE
    reporter.warn(f"job {submission_id} failed: {_cause(info.message or 'no message')}")
    code = info.driver_exit_code
    # A negative code is the signal that ended the driver; shells report it as 128 + signal.
    return 1 if code in (None, 0) else int(code) if code > 0 else 128 - int(code)
