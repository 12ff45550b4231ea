"""What every worker of a pretraining run is told, and where things lie in the run's folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.storage import sha256_file
from pretrain.checkpoint.compatibility import RunIdentity
from pretrain.config import PretrainConfig
from pretrain.data.corpora import WeightedCorpus, corpora_fingerprint
from pretrain.files import PretrainFiles

RESULT_NAME = PretrainFiles.RESULT
PREP_NAME = PretrainFiles.PREP


@dataclass(frozen=True)
class Run:
    """A run. `accepted` are the config keys that the user lets differ from those of the checkpoint it goes on from."""

    config: PretrainConfig
    seed: int
    prep_folder: Path
    folder: Path
    accepted: frozenset[str] = frozenset()

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.folder / PretrainFiles.CHECKPOINTS

    @property
    def journal(self) -> Path:
        """What happened, step by step."""
        return self.folder / PretrainFiles.JOURNAL

    def identity(self, corpora: Sequence[WeightedCorpus]) -> RunIdentity:
        """All that decides what the run learns; a checkpoint keeps it, a resumed run is held against it."""
        tokenizer = sha256_file(self.prep_folder / "tokenizer.json")
        return RunIdentity(self.config, self.seed, corpora_fingerprint(corpora), tokenizer)
