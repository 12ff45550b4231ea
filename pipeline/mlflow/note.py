"""A hidden file in a run's folder that notes what was logged to MLflow, so that nothing is logged twice."""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cluster.errors import UserError
from cluster.storage import read_document, write_document
from pipeline.folder.layout import RunFiles


@dataclass(frozen=True)
class MlflowNote:
    """The note of one folder and one store; a copied folder, or one with another store, starts with an empty note."""

    out: str
    store: str
    experiment: str = ""
    stages: dict[str, str] = field(default_factory=dict)
    """The key of every stage that was logged completely."""
    runs: list[str] = field(default_factory=list)
    """Ids of the folder's parent runs, the newest last."""
    key: str = ""
    """The key of the newest parent run; noted before the run is created, so it may not be among `runs` yet."""
    is_open: bool = False
    """Whether a process writes to the newest run, or died before it could end it."""
    is_superseded: bool = False
    """Whether the folder's systems changed since: the numbers of the new ones are logged to another run."""
    seal: str = ""
    """The change counter and the SHA-256 of the store's file at the end of the last command."""

    def with_run(self, run_id: str) -> "MlflowNote":
        """Return the note with `run_id` as the open, newest run."""
        others = [known for known in self.runs if known != run_id]
        return replace(self, runs=[*others, run_id], is_open=True, is_superseded=False)

    @property
    def known_run(self) -> str | None:
        """The id of the parent run that is continued, if there is one."""
        return self.runs[-1] if self.runs and not self.is_superseded else None

    def with_stages(self, stages: dict[str, str]) -> "MlflowNote":
        """Return the note with `stages` marked as logged completely."""
        return replace(self, stages={**self.stages, **stages})


def read_note(out: Path, store: str | None = None) -> MlflowNote:
    """Read the folder's note; an empty one is returned if it is unreadable or about another store or folder.

    Without `store`, a note about any store is returned.
    """
    folder = str(out.resolve())
    empty = MlflowNote(folder, store or "")
    path = out / RunFiles.MLFLOW_NOTE
    try:
        note = _parsed(read_document(path)) if path.is_file() else None
    except UserError:
        return empty
    if note is None or note.out != folder or store not in (None, note.store):
        return empty
    return note


def write_note(out: Path, note: MlflowNote) -> None:
    """Write the note. Atomic."""
    write_document(out / RunFiles.MLFLOW_NOTE, asdict(note))


def _parsed(values: Any) -> MlflowNote | None:
    try:
        note = MlflowNote(**values)
    except TypeError:
        return None
    return note if isinstance(note.stages, dict) and isinstance(note.runs, list) else None
