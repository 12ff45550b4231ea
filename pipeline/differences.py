"""Where two nested configs differ."""

from collections.abc import Mapping
from typing import Any

_ABSENT = object()


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
