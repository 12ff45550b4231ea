"""Runs as jobs on a Ray cluster: pack the code, submit it once, follow the log to the end.

A job keeps everything that it needs to resume in its output folder, so the same entrypoint can be started again at any
time; `cluster.keep_alive` does that from outside the cluster, because a job dies with its head.
"""

import asyncio
import importlib.util
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.errors import RetryableError, UserError, first_line
from cluster.job_client import check_version, connect, lost_cluster_is_retryable
from cluster.job_log import exit_code, follow_log
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
    client = connect(address)
    with lost_cluster_is_retryable(address):
        jobs = [job for job in client.list_jobs() if _ATTEMPT.fullmatch(job.submission_id or "")]
        return [_job_line(client, job) for job in sorted(jobs, key=lambda job: job.start_time or 0)]


def show_log(address: str, job: str, follow: bool, reporter: Reporter) -> int:
    """Print a job's log, to its end with `follow`; return the job's exit status, or 0 without `follow`."""
    client = connect(address)
    _check_job(client, address, job)
    with lost_cluster_is_retryable(address):
        if follow:
            asyncio.run(follow_log(client, job, address, reporter))
            return exit_code(client, job, reporter)
        for line in client.get_job_logs(job).splitlines():
            reporter.line(line)
        return 0


def stop_job(address: str, job: str, reporter: Reporter) -> None:
    """Ask a job to stop after a checkpoint, and wait for its end.

    Ray kills a job that takes longer than STOP_WAIT_S, which `submit_job` sets for every job.
    """
    client = connect(address)
    _check_job(client, address, job)
    with lost_cluster_is_retryable(address):
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
    client = connect(address)
    check_version(client, address, reporter)
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
        asyncio.run(follow_log(client, submission_id, address, reporter))
        return exit_code(client, submission_id, reporter)
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


def _check_job(client: Any, address: str, job: str) -> None:
    with lost_cluster_is_retryable(address):
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
