"""Compares nested configs, also with those of older versions of permcode, which lack some keys."""

from collections.abc import Mapping
from typing import Any

_ABSENT = object()
_ADDED_KEYS: Mapping[str, Any] = {
    "keep_vendored": False,
    "required": True,
    "training.learning_rates": [],
    "network": None,
    "pooling.hidden_dim": 384,
    "conba.form": "diagonal",
    "objective.holes": 0.0,
    "objective.fill_in_the_middle": 0.0,
    "model.context": "bidirectional",
}
"""Keys (their last parts) that were added after the first run folders were made, with the values that change nothing.
A new key of a stage's or a task's config is added here, unless older folders must not be resumed with it.
"""


def without_added_keys(config: Mapping[str, Any], parent: str = "") -> dict[str, Any]:
    """Return the nested `config` without the keys of `_ADDED_KEYS` that have the value listed there.

    So outputs that were made before a key was added are still found by their config.
    """
    return {
        key: without_added_keys(value, key) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if not any(_ADDED_KEYS.get(end, _ABSENT) == value for end in (key, f"{parent}.{key}"))
    }


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one mapping with dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def changed_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the dotted keys whose values differ or that only one side has, sorted."""
    old, new = flatten(before), flatten(after)
    return sorted(key for key in old.keys() | new.keys() if old.get(key, _ABSENT) != new.get(key, _ABSENT))


def describe_changes(before: Mapping[str, Any], after: Mapping[str, Any], limit: int = 6) -> str:
    """Return `key (1 there, 2 here)` for the first `limit` differing keys, and the number of the others."""
    old, new = flatten(before), flatten(after)
    keys = changed_keys(before, after)
    shown = [f"{key} ({_value(old, key)} there, {_value(new, key)} here)" for key in keys[:limit]]
    more = [f"and {len(keys) - limit} more"] if len(keys) > limit else []
    return ", ".join(shown + more)


def _value(flat: Mapping[str, Any], key: str) -> str:
    return repr(flat[key]) if key in flat else "absent"
