"""Real training processes over gloo, without Ray: started, watched, killed."""

import subprocess
from pathlib import Path

from cluster.journal import read_journal
from pretrain.checkpoint.reading import state_digest
from pretrain.config import PretrainConfig
from tests.distributed.fork_server import start_ranks


def small_config(**changes: object) -> PretrainConfig:
    """Seconds of training with dropout on, a checkpoint every 4 steps, memory longer than a segment."""
    values: dict[str, object] = {
        "model": {
            "num_layers": 2, "model_dim": 16, "num_heads": 2, "head_dim": 8, "ffn_dim": 32,
            "memory_tokens": 48, "dropout": 0.1,
        },
        "schedule": {"peak_learning_rate": 3e-3, "warmup_steps": 2},
        "checkpoint": {"every_steps": 4},
        "validation": {"every_steps": 100, "during_tokens": 128, "final_tokens": 256},
        "num_steps": 12,
        "lanes": 4,
        "micro_batch_lanes": 2,
        "segment_tokens": 32,
        "num_workers": 2,
    }  # fmt: skip
    return PretrainConfig.model_validate({**values, **changes})


class Workers:
    """One process per rank running `pretrain.worker.train`."""

    def __init__(
        self,
        config: PretrainConfig,
        prep_folder: Path,
        folder: Path,
        world_size: int,
        *,
        fault: dict[str, object] | None = None,
        accepted: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
        lag_steps: int = 0,
    ) -> None:
        """`fault`: see `tests.distributed.injected_faults`; `environment` is added to every process's.

        `lag_steps`: how many steps the host is ahead of the figures it knows, 1 as on a GPU.
        """
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "config": config.model_dump(mode="json"),
            "prep_folder": str(prep_folder),
            "folder": str(folder),
            "fault": fault,
            "accepted": accepted,
            "lag_steps": lag_steps,
        }
        self.folder = folder
        logs = str(folder.parent / f"{folder.name}-{{}}.log")
        self.processes = start_ranks("train_main", settings, world_size, logs, environment)

    def last_step(self) -> int:
        """The newest step in the journal."""
        steps = [
            record.step or 0
            for record in read_journal(self.folder / "journal.jsonl")
            if record.kind == "step"
        ]
        return max(steps, default=0)

    def kill(self) -> None:
        """SIGKILL to every process."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()

    def exit_codes(self, timeout_s: float = 120) -> list[int]:
        """Of all processes, when they have ended; what still runs after an error of another is killed."""
        codes = []
        for process in self.processes:
            try:
                codes.append(process.wait(timeout=timeout_s))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append(process.wait())
        return codes

    def log(self, rank: int) -> str:
        """What a process printed."""
        return (self.folder.parent / f"{self.folder.name}-{rank}.log").read_text(errors="replace")

    def wait(self) -> None:
        """Until all have ended; an unsuccessful one fails the test with its log."""
        codes = [process.wait(timeout=300) for process in self.processes]
        for rank, code in enumerate(codes):
            assert code == 0, f"rank {rank} ended with {code}:\n{self.log(rank)[-3000:]}"


def final_state(folder: Path, num_steps: int) -> str:
    """SHA-256 over weights, moments, memory and cursor of the last checkpoint."""
    return state_digest(folder / "checkpoints" / f"step-{num_steps:08d}")
