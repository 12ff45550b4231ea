"""Runs as jobs on a Ray cluster: pack the code, submit it once, follow the log to the end.

`submit_job` uses Ray's Jobs API. A job keeps everything that it needs to resume in its output folder, so any other
way to start jobs (retries around `submit_job`, a Slurm script, a KubeRay RayJob) can start the same entrypoint again;
its code belongs beside this module.
"""

import asyncio
import importlib.util
import logging
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.errors import UserError, first_line
from cluster.reporter import Reporter

PACKAGES = ("cluster", "data_prep", "pretrain", "finetune", "pipeline")
"""Our packages that a job needs; Ray puts their parent folder on every worker's path."""

INTERRUPTED_EXIT_CODE = 130
_KEY_CHARS = 12
_NOISY_LOGGERS = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)
"""These set their own level at import and log every upload to the terminal."""
_NUM_RECONNECTS = 10
_RECONNECT_S = 3.0


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
    `working_folder`. Ctrl-C stops the following, not the job. UserError when the cluster cannot be reached or refuses
    the token.
    """
    client = _connect(address)
    try:
        submission_id = _submit_once(
            client, entrypoint, working_folder, submission_key, dict(environment or {}), reporter
        )
    except (RuntimeError, OSError) as error:
        raise UserError(
            f"lost the cluster at {address} while submitting ({first_line(error)}): run the same command again"
        ) from error
    reporter.line(f"job {submission_id} at {address}; its log follows")
    try:
        asyncio.run(_follow_log(client, submission_id, reporter))
        return _exit_code(client, submission_id, reporter)
    except KeyboardInterrupt:
        reporter.line(
            f"no longer following; the job continues. Follow it with the same command again, or "
            f"`ray job logs --address {address} --follow {submission_id}`; "
            f"stop it with `ray job stop --address {address} {submission_id}`"
        )
        return INTERRUPTED_EXIT_CODE
    except (RuntimeError, OSError) as error:
        raise UserError(
            f"lost the cluster at {address} while following job {submission_id} ({first_line(error)}): "
            "the same command follows it again"
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
        raise UserError(
            f"no Ray dashboard answers at {address} ({first_line(error)}): check the address, and that the "
            "head was started with --include-dashboard=true and a --dashboard-host you can reach"
        ) from error


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


async def _follow_log(client: Any, submission_id: str, reporter: Reporter) -> None:
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
            if client.get_job_status(submission_id).is_terminal():
                break
        except (ConnectionError, RuntimeError, OSError):
            failures += 1
            if failures > _NUM_RECONNECTS:
                raise
        await asyncio.sleep(_RECONNECT_S)
    if pending:
        reporter.line(pending)


async def _log_chunks(client: Any, submission_id: str) -> AsyncIterator[str]:
    import aiohttp

    try:
        async for chunk in client.tail_job_logs(submission_id):
            yield chunk
    except aiohttp.ClientError as error:
        raise ConnectionError(str(error)) from error


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
    message = " ".join((info.message or "no message").split())[:300]
    reporter.warn(f"job {submission_id} failed: {message}")
    code = info.driver_exit_code
    # A negative code is the signal that ended the driver; shells report it as 128 + signal.
    return 1 if code in (None, 0) else int(code) if code > 0 else 128 - int(code)
