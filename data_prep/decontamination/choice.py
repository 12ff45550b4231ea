"""The evaluation sets that a prep folder keeps out: required sets, and optional sets that existed when prep began.

Which optional sets exist may differ between commands (another working directory, another installed package). So it is
determined once, when prep begins in a folder, and recorded in it: the folder's name does not depend on it, and a killed
prep resumes with the same sets.
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
    """The evaluation sets to keep out.

    `config` has the sets that are kept out; `digests` has the digest of each optional set's texts, None if it is not
    kept out; `lines` are messages about optional sets that are not kept out.
    """

    config: DecontaminationConfig
    digests: dict[str, str | None]
    lines: tuple[str, ...]


def required_sets(config: DecontaminationConfig) -> DecontaminationConfig:
    """Return the config with the required sets only."""
    return _select(config, {name for name, one in config.sets.items() if one.required})


def choose_sets(config: DecontaminationConfig, folder: Path) -> ChosenSets:
    """Return the sets that prep keeps out in `folder`: as recorded there, else those that exist now. Writes nothing.

    UserError when a set with which prep began is missing or has other texts, and as for `set_digest`.
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
            what = "has changed since" if digest is not None else "is missing, but existed when"
            raise UserError(
                f"evaluation set {name} ({one.path or one.package}) {what} prep began in {folder}: restore it "
                "to continue, or remove that folder to start again"
            )
        if digest is None:
            lines.append(f"continuing without {why}")
        elif before is None:
            lines.append(
                f"continuing without evaluation set {name}: it did not exist when prep began in {folder}; remove that "
                "folder to start again with it"
            )
        digests[name] = before
    return ChosenSets(_drop_missing(config, digests), digests, tuple(lines))


def record_choice(config: DecontaminationConfig, chosen: ChosenSets, folder: Path) -> None:
    """Record the choice in `folder`, if there are optional sets."""
    if chosen.digests:
        values = {"asked": _asked(config), "digests": chosen.digests}
        write_document(folder / CHOICE_NAME, values)


def sets_in_summary(config: DecontaminationConfig, folder: Path) -> dict[str, Any]:
    """Return the summary entry with the names of the sets kept out and missing in a folder in which prep has begun.

    Empty if no set is configured.
    """
    if not config.sets:
        return {}
    kept_out_sets = _drop_missing(config, _recorded(config, folder) or dict.fromkeys(_optional(config))).sets
    missing = [name for name in config.sets if name not in kept_out_sets]
    return {_SUMMARY_KEY: {"kept_out": list(kept_out_sets), "missing": missing}}


def evaluation_sets_of(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of `sets_in_summary` in a summary, empty if it has none."""
    return {_SUMMARY_KEY: summary[_SUMMARY_KEY]} if _SUMMARY_KEY in summary else {}


def _optional(config: DecontaminationConfig) -> dict[str, EvaluationSetConfig]:
    return {name: one for name, one in config.sets.items() if not one.required}


def _drop_missing(config: DecontaminationConfig, digests: dict[str, str | None]) -> DecontaminationConfig:
    return _select(config, {name for name in config.sets if digests.get(name, "") is not None})


def _select(config: DecontaminationConfig, names: set[str]) -> DecontaminationConfig:
    return config.model_copy(
        update={"sets": {name: one for name, one in config.sets.items() if name in names}}
    )


def _asked(config: DecontaminationConfig) -> str:
    """Return the fingerprint of the optional sets and their rules; when it changes, the choice is made again."""
    return fingerprint(_select(config, set(_optional(config))).model_dump(mode="json"))


def _recorded(config: DecontaminationConfig, folder: Path) -> dict[str, str | None] | None:
    path = folder / CHOICE_NAME
    if not _optional(config) or not path.is_file():
        return None
    values = read_document(path, f"remove {folder} and run the same command again")
    return values["digests"] if values.get("asked") == _asked(config) else None
