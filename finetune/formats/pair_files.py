"""Configuration of a writing task's pair files: a folder, a file per split, and the names of the two sides."""

from pathlib import Path
from typing import Literal

from pydantic import PositiveInt

from cluster.config import Config, LocalPath
from cluster.errors import UserError
from finetune.formats.files import read_parallel
from finetune.formats.records import read_text_pairs

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
_SIDE = "{side}"


class PairSource(Config):
    """The files of a task's pairs.

    A file name that contains `{side}` names two line-aligned files; one without it names a file of records (JSON lines,
    a JSON array or Parquet) in which the sides are fields. Swap `source` and `target` for the other direction.
    """

    folder: LocalPath | None = None
    """The folder of the files. If it is None, tasks that can make their data from a corpus do so."""
    train: str | None = None
    """The training file; None if there is no training data, or if the task makes its own."""
    valid: str | None = None
    """The validation file, for early stopping and choices; None holds out one item in twenty of train, at most 500."""
    test: str
    """The test file."""
    source: str
    """The input side: the value for `{side}`, or a field's name."""
    target: str
    """The output side, that is to be written."""
    max_train: PositiveInt | None = None
    """The maximum number of training items, drawn by seed; None uses all."""
    max_valid: PositiveInt | None = None
    max_test: PositiveInt | None = None

    def file_name(self, split: Split) -> str | None:
        """Return the file name of a split, as configured."""
        return {"train": self.train, "valid": self.valid, "test": self.test}[split]

    def most(self, split: Split) -> int | None:
        """Return the maximum number of items of a split; None if it is not limited."""
        return {"train": self.max_train, "valid": self.max_valid, "test": self.max_test}[split]

    def paths(self, split: Split) -> list[Path]:
        """Return the files of a split: none, one file of records, or two files of lines."""
        name, folder = self.file_name(split), self.folder
        if name is None or folder is None:
            return []
        if _SIDE in name:
            return [folder / name.replace(_SIDE, side) for side in (self.source, self.target)]
        return [folder / name]

    def files(self) -> list[Path]:
        """Return all files that `read` opens, for fingerprints; [] without a folder."""
        return [path for split in SPLITS for path in self.paths(split)]

    def read(self, split: Split) -> list[tuple[str, str]]:
        """Return (source, target) of every item, in the file's order; [] if the split has no file.

        Raise UserError if a file is missing, empty, misaligned or of another format.
        """
        if self.source == self.target:
            raise UserError(f"{self.folder}: source and target are both {self.source!r}: name two sides")
        paths = self.paths(split)
        if len(paths) == 2:
            return read_parallel(paths[0], paths[1])
        return read_text_pairs(paths[0], self.source, self.target) if paths else []


class PairFiles(PairSource):
    """A `PairSource` whose pairs come from files only."""

    folder: LocalPath
    """The folder of the files."""
