"""Where two nested configs differ, and which keys a config of an older permcode has not."""

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
}
"""Keys, by their last parts, that were added after the first run folders were made, and the values that change nothing.
A new key of a stage's or a task's config belongs here, unless older folders must not be resumed with it.
"""


def without_added_keys(config: Mapping[str, Any], parent: str = "") -> dict[str, Any]:
    """The nested `config` as a version of permcode would write it that had not the keys of `_ADDED_KEYS` yet.

    Those whose value is not the one listed stay. So what was made before a key was added is still found by its config.
    """
    return {
        key: without_added_keys(value, key) if isinstance(value, Mapping) else value
        for key, value in config.items()
        if not any(_ADDED_KEYS.get(end, _ABSENT) == value for end in (key, f"{parent}.{key}"))
    }


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one, keys joined by dots."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def changed_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The dotted keys whose values differ or that only one side has, sorted."""
    old, new = flatten(before), flatten(after)
    return sorted(key for key in old.keys() | new.keys() if old.get(key, _ABSENT) != new.get(key, _ABSENT))


def describe_changes(before: Mapping[str, Any], after: Mapping[str, Any], limit: int = 6) -> str:
    """`key (1 there, 2 here)` for the first `limit` differing keys, and how many more there are."""
    old, new = flatten(before), flatten(after)
    keys = changed_keys(before, after)
    shown = [f"{key} ({_value(old, key)} there, {_value(new, key)} here)" for key in keys[:limit]]
    more = [f"and {len(keys) - limit} more"] if len(keys) > limit else []
    return ", ".join(shown + more)


def _value(flat: Mapping[str, Any], key: str) -> str:
    return repr(flat[key]) if key in flat else "absent"
