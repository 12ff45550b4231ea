"""Which evaluation sets a prep folder keeps out: those that are required, and of the others what was there at first.

What is there may differ from one command to the next (another working directory, another installed package). So it is
looked up once, when prep begins in a folder, and recorded in it: the folder's name does not depend on it, and a killed
prep goes on with the same sets.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.errors import UserError
from cluster.storage import fingerprint, read_document, write_document
from data_prep.decontamination.config import DecontaminationConfig, EvaluationSetConfig
from data_prep.decontamination.index import set_digest
from data_prep.decontamination.items import MissingSet

CHOICE_NAME = ".evaluation-sets.json"
_SUMMARY_KEY = "evaluation_sets"


@dataclass(frozen=True)
class ChosenSets:
    """`config` has the sets that are kept out; `digests` says of each that is not required which texts it has, None
    where it is not kept out; `lines` is what there is to say about those."""

    config: DecontaminationConfig
    digests: dict[str, str | None]
    lines: tuple[str, ...]


def required_sets(config: DecontaminationConfig) -> DecontaminationConfig:
    """The config with those sets only that must be there."""
    return _only(config, {name for name, one in config.sets.items() if one.required})


def choose_sets(config: DecontaminationConfig, folder: Path) -> ChosenSets:
    """What prep keeps out in `folder`: as recorded there, else what is there now; writes nothing.

    UserError when a set that prep was begun with is gone or has other texts, and as `set_digest`.
    """
    optional = _optional(config)
    recorded = _recorded(config, folder)
    digests: dict[str, str | None] = {}
    lines: list[str] = []
    for name, one in optional.items():
        why, digest = "", None
        try:
            digest = set_digest(name, config)
        except MissingSet as error:
            why = str(error)
        before = digest if recorded is None else recorded[name]
        if before is not None and before != digest:
            what = "has other texts than" if digest is not None else "is gone, it was there"
            raise UserError(
                f"evaluation set {name} ({one.path or one.package}) {what} when prep was begun in {folder}: bring it "
                "back to go on, or remove that folder to begin anew"
            )
        if digest is None:
            lines.append(f"goes on without {why}")
        elif before is None:
            lines.append(
                f"goes on without evaluation set {name}: it was not there when prep was begun in {folder}; remove that "
                "folder to begin anew with it"
            )
        digests[name] = before
    return ChosenSets(_without(config, digests), digests, tuple(lines))


def record_choice(config: DecontaminationConfig, chosen: ChosenSets, folder: Path) -> None:
    """Write it down in `folder`, where there was something to choose."""
    if chosen.digests:
        values = {"asked": _asked(config), "digests": chosen.digests}
        write_document(folder / CHOICE_NAME, values)


def sets_in_summary(config: DecontaminationConfig, folder: Path) -> dict[str, Any]:
    """For the summary of a folder in which prep has begun: the names of the sets that are kept out and of those that
    were missing. Nothing where no set is configured."""
    if not config.sets:
        return {}
    kept_out = _without(config, _recorded(config, folder) or dict.fromkeys(_optional(config))).sets
    missing = [name for name in config.sets if name not in kept_out]
    return {_SUMMARY_KEY: {"kept_out": list(kept_out), "missing": missing}}


def evaluation_sets_of(summary: dict[str, Any]) -> dict[str, Any]:
    """What `sets_in_summary` put into a summary."""
    return {_SUMMARY_KEY: summary[_SUMMARY_KEY]} if _SUMMARY_KEY in summary else {}


def _optional(config: DecontaminationConfig) -> dict[str, EvaluationSetConfig]:
    return {name: one for name, one in config.sets.items() if not one.required}


def _without(config: DecontaminationConfig, digests: dict[str, str | None]) -> DecontaminationConfig:
    return _only(config, {name for name in config.sets if digests.get(name, "") is not None})


def _only(config: DecontaminationConfig, names: set[str]) -> DecontaminationConfig:
    return config.model_copy(
        update={"sets": {name: one for name, one in config.sets.items() if name in names}}
    )


def _asked(config: DecontaminationConfig) -> str:
    """What a record is of: other sets, or other rules for them, are chosen again."""
    return fingerprint(_only(config, set(_optional(config))).model_dump(mode="json"))


def _recorded(config: DecontaminationConfig, folder: Path) -> dict[str, str | None] | None:
    path = folder / CHOICE_NAME
    if not _optional(config) or not path.is_file():
        return None
    values = read_document(path, f"remove {folder} and run the same command again")
    return values["digests"] if values.get("asked") == _asked(config) else None
