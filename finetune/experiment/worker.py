"""What Ray Train runs in every worker of an experiment: the jobs, one after the other."""

from pathlib import Path
from typing import Any

from finetune.experiment.jobs import Job, Workplace, run_job
from pretrain.agreement import agreed
from pretrain.health.stop import stop_requests
from pretrain.ray_workers import joined


def work(settings: dict[str, Any]) -> None:
    """Do every job that has no result yet; end early when asked to stop."""
    jobs: list[Job] = settings["jobs"]
    with joined(settings, "finetune") as device:
        import torch.distributed as dist

        folder: Path = settings["folder"]
        with stop_requests(folder, looks_for_file=dist.get_rank() == 0) as stop:
            place = Workplace.open(
                settings["config"], settings["model"], settings["prep"], device, settings["overlapping"]
            )
            # The first worker looks, so that all do the same jobs.
            missing = [job for job in jobs if not agreed(job.result.exists)]
            place.check(missing)
            for job in missing:
                if not run_job(job, place, stop):
                    return
