"""A hidden file in a run's folder about what MLflow knows of it: so that nothing is asked or handed in twice."""

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cluster.errors import UserError
from cluster.storage import read_document, write_document
from pipeline.folder.layout import RunFiles


@dataclass(frozen=True)
class MlflowNote:
    """Of one folder and one store; a folder that was copied, or given another store, begins anew."""

    out: str
    store: str
    experiment: str = ""
    stages: dict[str, str] = field(default_factory=dict)
    """The key of every stage that the store has all about."""
    runs: list[str] = field(default_factory=list)
    """Ids of the folder's parent runs, the newest last."""
    key: str = ""
    """Of the newest parent run; noted before the run is begun, so it may not be among `runs` yet."""
    is_open: bool = False
    """Whether a process writes to the newest run, or died before it could end it."""
    is_superseded: bool = False
    """Whether the folder is another experiment's since: its numbers go to a run of their own."""

    seal: str = ""
    """Of the store's file when the last command ended: its change counter and its SHA-256."""

    def with_run(self, run_id: str) -> "MlflowNote":
        """The note while somebody writes to `run_id`."""
        others = [known for known in self.runs if known != run_id]
        return replace(self, runs=[*others, run_id], is_open=True, is_superseded=False)

    @property
    def known_run(self) -> str | None:
        """The parent run that is gone on with, if there is one."""
        return self.runs[-1] if self.runs and not self.is_superseded else None

    def with_stages(self, stages: dict[str, str]) -> "MlflowNote":
        """The note when the store has all about `stages`, too."""
        return replace(self, stages={**self.stages, **stages})


def read_note(out: Path, store: str | None = None) -> MlflowNote:
    """The folder's note, an empty one if it is about another store or folder.

    Without `store`, whatever it is about. An unreadable note only costs a second look.
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
    """Keep the note; atomic."""
    write_document(out / RunFiles.MLFLOW_NOTE, asdict(note))


def _parsed(values: Any) -> MlflowNote | None:
    try:
        note = MlflowNote(**values)
    except TypeError:
        return None
    return note if isinstance(note.stages, dict) and isinstance(note.runs, list) else None
