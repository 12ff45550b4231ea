"""Turns pydantic's validation errors into messages that name the keys of the recipe."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

_MAX_SHOWN_CHARS = 60
_MAX_SHOWN_KEYS = 12
_SUGGESTED = 3
_NOT_A_MAPPING = ("model_type", "model_attributes_type", "dict_type", "mapping_type")
_NOT_A_LIST = ("tuple_type", "list_type", "set_type", "frozen_set_type")
_NUMBER_FORM, _MAPPING_FORM = "constrained-int", "function-after["
_TAG = "kind"
"""The key whose value selects the class of a union."""


def explain(error: ValidationError, config_class: type[BaseModel]) -> str:
    """Return one line that names every wrong key with its value and what is allowed there."""
    found = [_problem(one, config_class) for one in _of_the_form_given(error)]
    problems = list(dict.fromkeys(found))
    if len(problems) == 1:
        return f"config: {problems[0]}"
    return f"config: {len(problems)} problems: " + "; ".join(
        f"({number}) {text}" for number, text in enumerate(problems, start=1)
    )


def _of_the_form_given(error: ValidationError) -> list[dict[str, Any]]:
    """Return the problems without those of a form that the user did not choose, of a key that is a number or a mapping.

    pydantic tries both forms and puts a name of its own for each into the location.
    """
    kept = []
    for one in error.errors(include_url=False):
        location = [part for part in one["loc"] if not str(part).startswith((_NUMBER_FORM, _MAPPING_FORM))]
        dropped = [str(part) for part in one["loc"] if part not in location]
        is_of_number = any(part.startswith(_NUMBER_FORM) for part in dropped)
        # A problem below the mapping's keys ends with a key of the user's.
        given_mapping = isinstance(one["input"], Mapping) or str(one["loc"][-1]) not in dropped
        if not dropped or is_of_number != bool(given_mapping):
            kept.append({**one, "loc": tuple(location)})
    return kept


@dataclass(frozen=True)
class _Place:
    """The location of a problem: the keys as the user wrote them, and the classes that are possible there."""

    keys: list[str]
    holders: list[type[BaseModel]]
    """Classes that may have the last key; of a union only the one whose kind was given."""
    alternatives: list[type[BaseModel]]
    """All classes of that union."""
    below: list[type[BaseModel]]
    """Classes that the value of the last key may have."""

    @property
    def dotted(self) -> str:
        return ".".join(self.keys) or "the recipe"


def _problem(found: dict[str, Any], config_class: type[BaseModel]) -> str:
    place = _resolve(config_class, found["loc"])
    kind, value = found["type"], _shown(found["input"])
    if kind == "extra_forbidden":
        return f"unknown key {place.dotted} = {value}: {_allowed(place, config_class)}"
    if kind == "missing":
        return f"{place.dotted} is missing: give it a value"
    if kind == "union_tag_not_found":
        return f"{place.dotted}.{_TAG} is missing: give one of {', '.join(_kinds(place.below))}"
    if kind == "union_tag_invalid":
        return _unknown_kind(place, found["input"])
    if kind in _NOT_A_MAPPING:
        return f"{place.dotted} = {value}: {_mapping_wanted(place)}"
    if kind in _NOT_A_LIST:
        return f"{place.dotted} = {value}: must be a list, [A, B, ...]"
    message = found["msg"].removeprefix("Value error, ")
    message = f"{message[:1].lower()}{message[1:]}".replace("input should be", "must be")
    # A check of several keys names them in its message; printing the whole mapping would hide that.
    return (
        f"{place.dotted}: {message}"
        if isinstance(found["input"], dict)
        else f"{place.dotted} = {value}: {message}"
    )


def _unknown_kind(place: _Place, value: Any) -> str:
    kinds, given = _kinds(place.below), value.get(_TAG) if isinstance(value, dict) else value
    near = get_close_matches(str(given), kinds, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"{place.dotted}.{_TAG} = {_shown(given)}: {hint}must be one of {', '.join(kinds)}"


def _mapping_wanted(place: _Place) -> str:
    if len(place.below) > 1 and (kinds := _kinds(place.below)):
        return f"must be keys and values: give {place.dotted}.{_TAG}=KIND with one of {', '.join(kinds)}"
    names = _listed(list(dict.fromkeys(name for model in place.below for name in model.model_fields)))
    return f"must be keys and values: {names}" if names else "must be keys and values"


def _resolve(config_class: type[BaseModel], location: Sequence[int | str]) -> _Place:
    """Find the place that pydantic's `location` means.

    pydantic inserts the tag of a union (`prep.source.directory.path`), which the user did not write.
    """
    keys: list[str] = []
    holders: list[type[BaseModel]] = [config_class]
    below = alternatives = holders
    union: list[type[BaseModel]] | None = None
    for position, part in enumerate(location):
        tagged = [model for model in below if part in _tags(model)]
        is_last = position == len(location) - 1
        if tagged and not any(part in model.model_fields for model in below) and not is_last:
            union, below = below, tagged
            continue
        if part != "[key]":  # pydantic's mark for an invalid name
            keys.append(str(part))
        holders, alternatives, union = below, union or below, None
        if not isinstance(part, int):
            fields = [model.model_fields[part] for model in below if part in model.model_fields]
            # Where no class has such a field, the part is a key of a mapping whose values have the classes `below`.
            if fields:
                below = [model for field in fields for model in _nested_models(field.annotation)]
    return _Place(keys, holders, alternatives, below)


def _kinds(models: Iterable[type[BaseModel]]) -> list[str]:
    return [str(tag) for model in models for tag in _tags(model)]


def _tags(model: type[BaseModel]) -> tuple[Any, ...]:
    kind = model.model_fields.get(_TAG)
    return get_args(kind.annotation) if kind and get_origin(kind.annotation) is Literal else ()


def _nested_models(annotation: Any) -> Iterable[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _nested_models(argument)


def _allowed(place: _Place, config_class: type[BaseModel]) -> str:
    key, prefix = place.keys[-1], place.keys[:-1]
    siblings = list(dict.fromkeys(name for model in place.holders for name in model.model_fields))
    near = get_close_matches(key, siblings, n=1, cutoff=0.6)
    if near:
        return f"did you mean {'.'.join([*prefix, near[0]])}?"
    others = [model for model in place.alternatives if key in model.model_fields]
    if others and place.alternatives != place.holders:
        above, mine = ".".join(prefix), ", ".join(_kinds(place.holders))
        kinds = _kinds(others)
        return (
            f"{above} is of the kind {mine}, which has no such key; {', '.join(kinds)} "
            f"{'has' if len(kinds) == 1 else 'have'} one: give {above}.{_TAG}={kinds[0]} as well"
        )
    elsewhere = [dotted for dotted in _dotted_keys(config_class) if dotted.rsplit(".", 1)[-1] == key]
    if elsewhere:
        return f"did you mean {' or '.join(list(dict.fromkeys(elsewhere))[:_SUGGESTED])}?"
    return f"allowed here are {_listed(siblings)}" if siblings else "no keys are allowed here"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_SHOWN_KEYS]) + (", ..." if len(names) > _MAX_SHOWN_KEYS else "")


def _dotted_keys(model: type[BaseModel], prefix: str = "") -> Iterable[str]:
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}"
        # In a mapping, a name that the user chose stands before the keys of its values.
        below = f"{prefix}{name}." + ("NAME." if get_origin(field.annotation) is dict else "")
        for nested in _nested_models(field.annotation):
            yield from _dotted_keys(nested, below)


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _MAX_SHOWN_CHARS else text[: _MAX_SHOWN_CHARS - 3] + "..."
