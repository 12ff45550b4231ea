"""Rules for resuming a checkpoint under a changed config: what may change freely, only if accepted, or never."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cluster.errors import UserError
from cluster.storage import read_document
from pretrain.checkpoint.listing import step_folders, step_of
from pretrain.config import PretrainConfig

IDENTITY_NAME = "config.json"


class Rule(Enum):
    """The effect of a setting that was changed between two starts."""

    FREE = "the result is the same"
    ACCEPTED = "the run is another one from there on: only with --accept KEY"
    NEVER = "what the checkpoint holds does not fit any more"


RULES: dict[str, Rule] = {
    "num_workers": Rule.FREE,
    "zero_stage": Rule.FREE,
    "offload_optimizer": Rule.FREE,
    "offload_parameters": Rule.FREE,
    "recompute": Rule.FREE,
    "compile": Rule.FREE,
    "threads_per_worker": Rule.FREE,
    "max_worker_restarts": Rule.FREE,
    "checkpoint": Rule.FREE,
    "validation": Rule.FREE,
    "health": Rule.FREE,
    "num_steps": Rule.ACCEPTED,
    "data": Rule.ACCEPTED,
    "schedule": Rule.ACCEPTED,
    "optimizer": Rule.ACCEPTED,
    "precision": Rule.ACCEPTED,
    "deterministic": Rule.ACCEPTED,
    "deterministic_threads": Rule.ACCEPTED,
    "objective": Rule.ACCEPTED,
    "micro_batch_lanes": Rule.ACCEPTED,
    "model.dropout": Rule.ACCEPTED,
    "model.attention_dropout": Rule.ACCEPTED,
    "corpus": Rule.ACCEPTED,
    "model": Rule.NEVER,
    "lanes": Rule.NEVER,
    "segment_tokens": Rule.NEVER,
    "seed": Rule.NEVER,
    "tokenizer": Rule.NEVER,
}
"""Rules by dotted key. A rule holds for all keys below it without a rule of their own; a key without any may never
change."""

_FOLLOWS = {"corpus": "data", "deterministic_threads": "deterministic"}
"""Settings that follow from another one: a change of both is accepted with that one's key."""

_WHY_NEVER = {
    "model": "the weights have another shape",
    "lanes": "the memory and the position in the corpus belong to lanes",
    "segment_tokens": "the position in the corpus is counted in segments",
    "seed": "orders, dropout and the order of the corpus depend on it",
    "tokenizer": "the weights were trained on other tokens",
}
_OTHER_TOKENS = "lanes read other tokens from here on, some perhaps again or never"


@dataclass(frozen=True)
class RunIdentity:
    """All that identifies a run; config.json of a checkpoint."""

    config: PretrainConfig
    seed: int
    corpus: str
    """SHA-256 of the manifest."""
    tokenizer: str
    """SHA-256 of tokenizer.json."""

    def to_json(self) -> dict[str, Any]:
        """Return the content of config.json."""
        return {"pretrain": self.config.model_dump(mode="json")} | self._others()

    @classmethod
    def read(cls, checkpoint: Path) -> "RunIdentity":
        """Read the identity from a checkpoint's folder.

        Raises UserError when config.json is missing or has keys that this version does not know.
        """
        path = checkpoint / IDENTITY_NAME
        try:
            stored = read_document(path, "use another checkpoint")
            config = PretrainConfig.model_validate(stored["pretrain"])
            return cls(config, int(stored["seed"]), str(stored["corpus"]), str(stored["tokenizer"]))
        except FileNotFoundError:
            raise UserError(
                f"{checkpoint} was made by an older permcode: its model can be used, but training cannot resume from "
                "it; use another --out"
            ) from None
        except (KeyError, TypeError, ValueError, ValidationError):
            raise UserError(
                f"{path} has settings that this permcode does not know: resume with the version that wrote it, or use "
                "another --out"
            ) from None

    def settings(self) -> dict[str, Any]:
        """Return every value by its dotted key."""
        return dict(_flat(self.config.model_dump(mode="json"))) | self._others()

    def _others(self) -> dict[str, Any]:
        threads = (self.config.threads_per_worker or 1) if self.config.deterministic else None
        return {
            "seed": self.seed,
            "corpus": self.corpus,
            "tokenizer": self.tokenizer,
            # The rounding of a sum depends on the number of threads that share it.
            "deterministic_threads": threads,
        }


@dataclass(frozen=True)
class Change:
    """A setting that differs from the checkpoint's."""

    key: str
    saved: Any
    now: Any

    @property
    def rule(self) -> Rule:
        """The rule for this setting."""
        return rule_of(self.key)

    def __str__(self) -> str:
        return f"{self.key} was {_short(self.saved)} and is now {_short(self.now)}"


def rule_of(key: str) -> Rule:
    """Return the rule of a dotted key, or of the nearest key above it that has one."""
    for above in _with_parents(key):
        if above in RULES:
            return RULES[above]
    return Rule.NEVER


def without_free(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a dumped config on which the result depends."""
    return {key: value for key, value in settings.items() if RULES.get(key) is not Rule.FREE}


def differences(saved: RunIdentity, now: RunIdentity) -> list[Change]:
    """Return every setting that differs, sorted by key."""
    old, new = saved.settings(), now.settings()
    pairs = [Change(key, old.get(key), new.get(key)) for key in sorted(old.keys() | new.keys())]
    # 1, 1.0 and True are different settings.
    return [one for one in pairs if type(one.saved) is not type(one.now) or one.saved != one.now]


def check_resumable(saved: RunIdentity, now: RunIdentity, accepted: frozenset[str]) -> list[Change]:
    """Return the changes that `accepted` allows; a key accepts all keys below it.

    Raises UserError, with both values, for every other change that is not free.
    """
    changes = [change for change in differences(saved, now) if change.rule is not Rule.FREE]
    never = [change for change in changes if change.rule is Rule.NEVER]
    if never:
        changed = "; ".join(f"{change} ({_why_never(change.key)})" for change in never)
        raise UserError(f"this run cannot be resumed: {changed}: undo the change, or use another --out")
    refused = [change for change in changes if not accepted.intersection(_with_parents(change.key))]
    refused = [change for change in refused if not _follows_another(change, changes)]
    if refused:
        changed = "; ".join(_with_consequence(change) for change in refused)
        flags = " ".join(f"--accept {change.key}" for change in refused)
        raise UserError(
            f"this run was begun with other settings: {changed}: undo the change, or resume with {flags}"
        )
    return changes


def check_num_steps(step: int, config: PretrainConfig) -> None:
    """Raise UserError when `num_steps` is below `step`, the steps that the run has made."""
    if config.num_steps < step:
        raise UserError(
            f"this run has made {step} steps, and num_steps is now {config.num_steps}: set it to {step} or more, or "
            "use another --out"
        )


def check_newest(checkpoints: Path, config: PretrainConfig, seed: int, accepted: frozenset[str]) -> None:
    """Run `check_resumable` and `check_num_steps` as far as possible before the corpus is opened and files change.

    The newest checkpoint whose config.json can be read is compared; nothing is checked without one.
    """
    for checkpoint in step_folders(checkpoints):
        try:
            saved = RunIdentity.read(checkpoint)
        except UserError:
            continue  # damaged, or of another version: training reports it, or skips it
        check_resumable(saved, replace(saved, config=config, seed=seed), accepted)
        check_num_steps(step_of(checkpoint) or 0, config)
        return


def _follows_another(change: Change, changes: Sequence[Change]) -> bool:
    source = _FOLLOWS.get(change.key)
    return source is not None and any(source in _with_parents(other.key) for other in changes)


def _with_consequence(change: Change) -> str:
    is_other_text = {"corpus", "data"}.intersection(_with_parents(change.key))
    return f"{change} ({_OTHER_TOKENS})" if is_other_text else str(change)


def _why_never(key: str) -> str:
    return next((_WHY_NEVER[above] for above in _with_parents(key) if above in _WHY_NEVER), "it is new here")


def _with_parents(key: str) -> Iterator[str]:
    """Yield `a.b.c`, `a.b`, `a`."""
    while key:
        yield key
        key = key.rpartition(".")[0]


def _flat(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from _flat(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner


def _short(value: Any) -> str:
    text = "not set" if value is None else str(value)
    return text if len(text) <= 24 else f"{text[:12]}..."
