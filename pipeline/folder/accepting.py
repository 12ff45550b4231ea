"""Going on under changed settings: with a pretraining run where the user accepts that, with an experiment that grows.

A stage's folder is named by its config. So a run whose settings were changed and accepted takes its unfinished folder
along under the new name: what was trained stays, and `pretrain` says in the journal what changed.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from cluster.errors import UserError
from cluster.storage import fsync_folder
from pipeline.folder.graph import Stage, Step, stage_folders
from pipeline.folder.layout import StageFiles
from pipeline.folder.sections import PlaceConfig
from pretrain.checkpoint.compatibility import Rule, rule_of
from pretrain.files import PretrainFiles

Made = TypeVar("Made", bound=PlaceConfig)
_PREFIX = "pretrain."
_FINISHED = (StageFiles.RECORD, StageFiles.RESULT)
"""What says that the stage is finished, under its old settings."""
GROWING = frozenset({"systems", "training_of", "num_seeds", "baseline"})
"""Of an experiment's config: its folder may be gone on with though these were changed."""


def accepted_keys(given: Iterable[str]) -> frozenset[str]:
    """The settings of pretraining that may be changed, without their prefix. UserError for one that may not."""
    keys = frozenset(key.removeprefix(_PREFIX) for key in given)
    for key in sorted(keys):
        rule = rule_of(key)
        if rule is Rule.FREE:
            raise UserError(f"--accept {key} is not needed: {_PREFIX}{key} may always be changed")
        if rule is Rule.NEVER:
            raise UserError(
                f"--accept {key} is not possible: {_PREFIX}{key} of a run cannot be changed; use another --out"
            )
    return keys


def may_differ(key: str, accepted: frozenset[str]) -> bool:
    """Whether a run may go on though `key` (dotted, of the whole run) was changed.

    `accepted` are settings of pretraining without their prefix, or `GROWING`.
    """
    if not key.startswith(_PREFIX):
        return accepted == GROWING and key.split(".")[0] in GROWING
    setting = key.removeprefix(_PREFIX)
    rule = rule_of(setting)
    above = {setting.rsplit(".", cut)[0] for cut in range(setting.count(".") + 1)}
    return rule is Rule.FREE or (rule is Rule.ACCEPTED and not accepted.isdisjoint(above))


def could_be_accepted(keys: Sequence[str]) -> bool:
    """Whether `--accept` would let a run go on though these were changed."""
    return all(
        key.startswith(_PREFIX) and rule_of(key.removeprefix(_PREFIX)) is Rule.ACCEPTED for key in keys
    )


def take_over(out: Path, before: Sequence[Stage], now: Sequence[Stage], name: str = "pretrain") -> None:
    """Give a stage's folder of the stages before the name it has now; does nothing when it has it.

    What it came to under its old settings goes, a pretraining's model too: it would be taken for the newest.
    """
    old, new = (stage_folders(stages, out)[name] for stages in (before, now))
    if old == new or not old.is_dir() or new.exists():
        return
    for result in _FINISHED:
        (old / result).unlink(missing_ok=True)
    if name == "pretrain":
        model = old / PretrainFiles.MODEL
        # First: without it the folder is no model.
        (model / PretrainFiles.MODEL_CONFIG).unlink(missing_ok=True)
        shutil.rmtree(model, ignore_errors=True)
    old.rename(new)
    fsync_folder(out)


def refuse_to_leave_training(steps: Sequence[Step]) -> None:
    """Raise UserError where pretraining would begin anew beside one that is not finished.

    That comes from a corpus that was changed, or another version of permcode, between two commands.
    """
    for step in steps:
        if step.stage.name != "pretrain" or step.action != "run":
            continue
        for folder in sorted(step.folder.parent.glob("pretrain-*/")):
            commits = sorted(folder.glob("checkpoints/step-*"))
            if commits and not (folder / StageFiles.RECORD).exists():
                raise UserError(
                    f"pretraining was begun in {folder} and has come to {commits[-1].name}, but the corpus it reads, "
                    f"or permcode itself, has changed since: set that back to go on, remove {folder.name} to begin "
                    "anew, or use another --out"
                )


def config_of(values: Mapping[str, Any], kind: type[Made]) -> Made:
    """The config a folder was made with. UserError when this permcode does not know its keys."""
    try:
        return kind.model_validate(values)
    except ValidationError:
        raise UserError(
            "the folder's config.yaml is of another version of permcode: go on with that one, or use another --out"
        ) from None
