"""Resuming with changed settings: a pretraining run with `--accept`, an experiment with more systems or seeds.

A stage's folder is named by its config. When a run is resumed with accepted changes, its unfinished folder is renamed:
what was trained stays, and `pretrain` records the changes in the journal.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from cluster.errors import UserError
from cluster.storage import fsync_folder
from pipeline.folder.graph import PlannedStage, Stage, stage_folders
from pipeline.folder.layout import StageFiles
from pipeline.folder.sections import PlaceConfig
from pretrain.checkpoint.compatibility import Rule, rule_of
from pretrain.files import PretrainFiles

Made = TypeVar("Made", bound=PlaceConfig)
_PREFIX = "pretrain."
_FINISHED = (StageFiles.RECORD, StageFiles.RESULT)
"""The files that mark a stage as finished."""
EXTENDABLE_KEYS = frozenset({"systems", "training_of", "num_seeds", "baseline"})
"""The keys of an experiment's config that may change when its folder is resumed."""


def accepted_keys(given: Iterable[str]) -> frozenset[str]:
    """Return the settings that `--accept` names, without the prefix `pretrain.`.

    Raises UserError for a setting that may always be changed or may never be changed.
    """
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
    """Return whether a run may be resumed with another value of `key` (a dotted key of the whole run's config).

    `accepted` are settings of pretraining without their prefix, or `EXTENDABLE_KEYS`.
    """
    if not key.startswith(_PREFIX):
        return accepted == EXTENDABLE_KEYS and key.split(".")[0] in EXTENDABLE_KEYS
    setting = key.removeprefix(_PREFIX)
    rule = rule_of(setting)
    above = {setting.rsplit(".", cut)[0] for cut in range(setting.count(".") + 1)}
    return rule is Rule.FREE or (rule is Rule.ACCEPTED and not accepted.isdisjoint(above))


def can_be_accepted(keys: Sequence[str]) -> bool:
    """Return whether a run could be resumed with other values of these keys if all were given to `--accept`."""
    return all(
        key.startswith(_PREFIX) and rule_of(key.removeprefix(_PREFIX)) is Rule.ACCEPTED for key in keys
    )


def rename_stage_folder(
    out: Path, before: Sequence[Stage], now: Sequence[Stage], name: str = "pretrain"
) -> None:
    """Rename the folder that the stage `name` has among the stages `before` to the one it has among `now`.

    Does nothing where the names are equal or the new folder exists. Results under the old settings are removed, and so
    is a pretrained model: it would be taken for the newest one.
    """
    old, new = (stage_folders(stages, out)[name] for stages in (before, now))
    if old == new or not old.is_dir() or new.exists():
        return
    for result in _FINISHED:
        (old / result).unlink(missing_ok=True)
    if name == "pretrain":
        model = old / PretrainFiles.MODEL
        # Removed first: a folder without this file is not read as a model.
        (model / PretrainFiles.MODEL_CONFIG).unlink(missing_ok=True)
        shutil.rmtree(model, ignore_errors=True)
    old.rename(new)
    fsync_folder(out)


def refuse_to_restart_training(steps: Sequence[PlannedStage]) -> None:
    """Raise UserError where pretraining would start from step 0 beside an unfinished one.

    The cause is a corpus, or a version of permcode, that changed between two commands.
    """
    for step in steps:
        if step.stage.name != "pretrain" or step.action != "run":
            continue
        for folder in sorted(step.folder.parent.glob("pretrain-*/")):
            checkpoints = sorted(folder.glob("checkpoints/step-*"))
            if checkpoints and not (folder / StageFiles.RECORD).exists():
                raise UserError(
                    f"pretraining in {folder} has reached {checkpoints[-1].name}, but the corpus it reads, or permcode "
                    f"itself, has changed since: undo that change to resume, remove {folder.name} to start again, or "
                    "use another --out"
                )


def parse_config(values: Mapping[str, Any], kind: type[Made]) -> Made:
    """Return the config that a folder was made with. Raises UserError if this permcode does not know its keys."""
    try:
        return kind.model_validate(values)
    except ValidationError:
        raise UserError(
            "the folder's config.yaml is of another version of permcode: use that version, or another --out"
        ) from None
