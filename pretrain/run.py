"""A pretraining run as its workers get it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.lease import Lease
from cluster.storage import sha256_file
from pretrain.checkpoint.compatibility import RunIdentity
from pretrain.config import PretrainConfig
from pretrain.data.corpora import WeightedCorpus, corpora_fingerprint
from pretrain.files import PretrainFiles


@dataclass(frozen=True)
class Run:
    """A run. `accepted` are the config keys that may differ from those of the checkpoint it resumes from.

    `lease` is the attempt's right to write; None where nobody else can write in the folder.
    """

    config: PretrainConfig
    seed: int
    prep_folder: Path
    folder: Path
    accepted: frozenset[str] = frozenset()
    lease: Lease | None = None

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.folder / PretrainFiles.CHECKPOINTS

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.folder / PretrainFiles.JOURNAL

    def identity(self, corpora: Sequence[WeightedCorpus]) -> RunIdentity:
        """Return all that determines the result; a checkpoint contains it, and resuming compares it."""
        tokenizer = sha256_file(self.prep_folder / "tokenizer.json")
        return RunIdentity(self.config, self.seed, corpora_fingerprint(corpora), tokenizer)
