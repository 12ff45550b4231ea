"""The stage graph: what the output of a stage depends on, and which stages have to run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cluster.errors import UserError
from cluster.reporter import Reporter
from cluster.resources import ResourcesConfig
from cluster.storage import fingerprint
from pipeline.folder.differences import changed_keys
from pipeline.folder.stage_record import StageRecord, read_record, verify_outputs

Action = Literal["skip", "run", "resume", "damaged"]
_KEY_CHARS = 12


@dataclass(frozen=True)
class StageContext:
    """The arguments of a stage: its own folder, the folders it reads (by stage name), a reporter, its signature.

    `resources` is what its workers need.
    """

    folder: Path
    inputs: Mapping[str, Path]
    reporter: Reporter
    signature: str = ""
    resources: ResourcesConfig = field(default_factory=ResourcesConfig)


@dataclass(frozen=True)
class Stage:
    """One node. Its output is a function of `config`, `version`, `signature()` and the stages it reads.

    `signature` identifies what the stage reads from outside the run (a corpus). `version` is increased when the code
    changes what it writes. `journals` (name -> path in the folder, "" for the stage itself) and `artifacts` (paths in
    the folder) are logged to MLflow; `headlines` (dotted keys of the summary) are logged on the run itself, to compare
    whole runs. `check_inputs(folder)` is called before the stage runs there; it returns lines for the user and raises
    UserError for inputs that the stage cannot use.
    """

    name: str
    config: Mapping[str, Any]
    run: Callable[[StageContext], dict[str, Any]]
    inputs: tuple[str, ...] = ()
    signature: Callable[[], str] = lambda: ""
    version: int = 1
    needs_ray: bool = True
    journals: Mapping[str, str] = field(default_factory=dict)
    artifacts: tuple[str, ...] = ()
    headlines: tuple[str, ...] = ()
    check_inputs: Callable[[Path], Sequence[str]] = lambda folder: ()


@dataclass(frozen=True)
class PlannedStage:
    """A stage in a plan: its key and folder, what is to be done, and the reason."""

    stage: Stage
    key: str
    input_keys: Mapping[str, str]
    signature: str
    folder: Path
    action: Action
    reason: str
    record: StageRecord | None = None

    @property
    def must_run(self) -> bool:
        return self.action in ("run", "resume")


def plan(stages: Sequence[Stage], out: Path) -> list[PlannedStage]:
    """Decide for every stage, in order, whether it has to run in `out`; changes nothing there.

    `stages` are sorted so that each comes after those it reads. The files of finished stages are verified; a damaged
    stage has the action "damaged", and its reason says how to fix it. Raises UserError for an input that cannot be
    read.
    """
    steps: dict[str, PlannedStage] = {}
    for stage in stages:
        signature = stage.signature()
        inputs = {name: steps[name].key for name in stage.inputs}
        key = _key(stage, inputs, signature)
        folder = stage_folder(out, stage.name, key)
        action, reason, record = _decide(stage, folder, inputs, signature)
        steps[stage.name] = PlannedStage(stage, key, inputs, signature, folder, action, reason, record)
    return list(steps.values())


def stage_folders(stages: Sequence[Stage], out: Path) -> dict[str, Path]:
    """Return the folder of every stage by name, without looking into `out`. Raises UserError like `plan`."""
    keys: dict[str, str] = {}
    for stage in stages:
        keys[stage.name] = _key(stage, {name: keys[name] for name in stage.inputs}, stage.signature())
    return {stage.name: stage_folder(out, stage.name, keys[stage.name]) for stage in stages}


def _key(stage: Stage, inputs: Mapping[str, str], signature: str) -> str:
    identity = {"stage": stage.name, "version": stage.version, "config": stage.config}
    return fingerprint({**identity, "inputs": inputs, "signature": signature})


def stage_folder(out: Path, name: str, key: str) -> Path:
    """Return the folder of the stage `name` with this key."""
    return out / f"{name}-{key[:_KEY_CHARS]}"


def refuse_damage(steps: Sequence[PlannedStage]) -> None:
    """Raise UserError for the first finished step whose output is damaged."""
    for step in steps:
        if step.action == "damaged":
            raise UserError(step.reason)


def ancestors(stages: Sequence[Stage], name: str) -> list[Stage]:
    """Return the stage `name` and all stages that it needs, in the graph's order."""
    by_name = {stage.name: stage for stage in stages}
    wanted: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current not in wanted:
            wanted.add(current)
            waiting.extend(by_name[current].inputs)
    return [stage for stage in stages if stage.name in wanted]


def _decide(
    stage: Stage, folder: Path, inputs: Mapping[str, str], signature: str
) -> tuple[Action, str, StageRecord | None]:
    try:
        record = read_record(folder)
        if record is not None:
            verify_outputs(folder, record)
            return "skip", f"finished {record.finished_at}, nothing changed since", record
    except UserError as error:
        return "damaged", str(error), None
    if folder.is_dir() and any(folder.iterdir()):
        return "resume", f"unfinished work in {folder.name}", None
    return "run", _why_new(stage, folder.parent, inputs, signature), None


def _why_new(stage: Stage, out: Path, inputs: Mapping[str, str], signature: str) -> str:
    """Return why the stage has to run, compared with its newest finished output under another key."""
    older = [record for folder in out.glob(f"{stage.name}-*") if (record := _readable(folder)) is not None]
    if not older:
        return "no output yet"
    last = max(older, key=lambda record: record.finished_at)
    if last.version != stage.version:
        return f"the code's output version changed ({last.version} to {stage.version})"
    if changed := changed_keys(last.config, stage.config):
        return f"config changed: {', '.join(changed)}"
    if moved := [name for name in inputs if last.inputs.get(name) != inputs[name]]:
        return f"input changed: {', '.join(moved)}"
    return "input changed: the files it reads" if last.signature != signature else "its output was removed"


def _readable(folder: Path) -> StageRecord | None:
    try:
        return read_record(folder)
    except UserError:
        return None
