"""The commands for jobs on a Ray cluster that `permcode submit` started: jobs, logs, stop."""

from datetime import datetime
from typing import Annotated

import typer

from cluster.reporter import Reporter
from pipeline.commands.exit_codes import exit_codes

Address = Annotated[str, typer.Option("--address", metavar="URL", help="Ray's job server: http://HEAD:8265.")]
Job = Annotated[str, typer.Argument(metavar="JOB", help="A job's name, as `permcode jobs` prints it.")]


def jobs(address: Address) -> None:
    """List the cluster's jobs of permcode with their stage and progress.

    \b
    permcode jobs --address http://head:8265
    """
    with exit_codes(None, only_shows=True):
        from cluster.jobs import list_jobs

        reporter = Reporter()
        found = list_jobs(address)
        for job in found:
            started = (
                "" if job.started_s is None else f"{datetime.fromtimestamp(job.started_s):%Y-%m-%d %H:%M:%S}"
            )
            parts = (job.name, job.state, f"attempt {job.attempt}", started, job.stage, job.progress)
            reporter.line("  ".join(part for part in parts if part))
        if not found:
            reporter.line(f"no job of permcode is on {address}")


def logs(
    job: Job,
    address: Address,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
) -> None:
    """Print a job's log; with --follow, end with the job's exit status.

    \b
    permcode logs permcode-0123456789ab-1 --address http://head:8265 -f
    """
    with exit_codes(None, only_shows=True):
        from cluster.jobs import show_log

        raise typer.Exit(show_log(address, job, follow, Reporter()))


def stop(job: Job, address: Address) -> None:
    """Stop a job after a checkpoint, and wait for its end.

    \b
    permcode stop permcode-0123456789ab-1 --address http://head:8265
    """
    with exit_codes(None):
        from cluster.jobs import stop_job

        stop_job(address, job, Reporter())
