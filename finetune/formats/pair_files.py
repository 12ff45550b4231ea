"""Where the pairs of a writing task stand: a folder, a file per split, and the two sides' names."""

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
    """A file name with `{side}` in it names two line-aligned files; one without names a file of records (JSON lines,
    a JSON array or Parquet) in which the sides are fields.

    The direction is which side is the source: swap `source` and `target` for the other.
    """

    folder: LocalPath | None = None
    """Holds the files. Tasks that can make their data from a corpus do so without one."""
    train: str | None = None
    """File to learn from; None where there is nothing to learn from, or where the task makes its own."""
    valid: str | None = None
    """File to stop and choose by; None takes one item in twenty of train, at most 500."""
    test: str
    """File to be judged by."""
    source: str
    """The side that is read: what `{side}` becomes, or a field's name."""
    target: str
    """The side that is written."""
    max_train: PositiveInt | None = None
    """Training items, drawn by seed; None takes all."""
    max_valid: PositiveInt | None = None
    max_test: PositiveInt | None = None

    def file_name(self, split: Split) -> str | None:
        """Return the file name of a split, as configured."""
        return {"train": self.train, "valid": self.valid, "test": self.test}[split]

    def most(self, split: Split) -> int | None:
        """Items of a split at most."""
        return {"train": self.max_train, "valid": self.max_valid, "test": self.max_test}[split]

    def paths(self, split: Split) -> list[Path]:
        """The files of a split: none, one of records or two of lines."""
        name, folder = self.file_name(split), self.folder
        if name is None or folder is None:
            return []
        if _SIDE in name:
            return [folder / name.replace(_SIDE, side) for side in (self.source, self.target)]
        return [folder / name]

    def files(self) -> list[Path]:
        """All files that `read` opens, for fingerprints; none without a folder."""
        return [path for split in SPLITS for path in self.paths(split)]

    def read(self, split: Split) -> list[tuple[str, str]]:
        """(source, target) of every item, in the file's order; [] where the split has no file.

        UserError when a file is missing, empty, misaligned or of another format.
        """
        if self.source == self.target:
            raise UserError(f"{self.folder}: source and target are both {self.source!r}: name two sides")
        paths = self.paths(split)
        if len(paths) == 2:
            return read_parallel(paths[0], paths[1])
        return read_text_pairs(paths[0], self.source, self.target) if paths else []


class PairFiles(PairSource):
    """Pairs that come from files only."""

    folder: LocalPath
    """Holds the files."""
