"""A job of an experiment, by name."""

from dataclasses import dataclass
from pathlib import Path

from finetune.experiment.files import RESULT_NAME


@dataclass(frozen=True)
class Job:
    """A system by name, for one seed."""

    system: str
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        """The name of the job in messages."""
        return f"{self.system}, seed {self.seed}"

    @property
    def key(self) -> str:
        """The name of the job in logs and files."""
        return f"{self.system}/seed-{self.seed}"

    @property
    def result(self) -> Path:
        """The file that exists once the job is done."""
        return self.folder / RESULT_NAME
