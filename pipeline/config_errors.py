"""pydantic's findings in the words of somebody who wrote a recipe."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError

_MAX_SHOWN_CHARS = 60
_MAX_SHOWN_KEYS = 12


def explain(error: ValidationError, config_class: type[BaseModel]) -> str:
    """One line that names every wrong key with its value and what is allowed there."""
    problems = [_problem(dict(found), config_class) for found in error.errors(include_url=False)]
    if len(problems) == 1:
        return f"config: {problems[0]}"
    return f"config: {len(problems)} problems: " + "; ".join(
        f"({number}) {text}" for number, text in enumerate(problems, start=1)
    )


def _problem(found: dict[str, Any], config_class: type[BaseModel]) -> str:
    keys, models = _resolve(config_class, found["loc"])
    dotted = ".".join(keys) or "the recipe"
    if found["type"] == "extra_forbidden":
        return f"unknown key {dotted} = {_shown(found['input'])}: {_allowed(keys, models, config_class)}"
    message = found["msg"].removeprefix("Value error, ")
    if found["type"] == "missing":
        return f"{dotted} is missing: give it a value"
    text = f"{message[:1].lower()}{message[1:]}"
    # A rule over several keys names them itself; the whole mapping would only hide it.
    return (
        f"{dotted}: {text}"
        if isinstance(found["input"], dict)
        else f"{dotted} = {_shown(found['input'])}: {text}"
    )


def _resolve(
    config_class: type[BaseModel], location: Sequence[int | str]
) -> tuple[list[str], list[type[BaseModel]]]:
    """The keys as the user wrote them and the classes that may hold the last one.

    pydantic puts the tag of a union (`prep.source.directory.path`) into the location; nobody wrote it.
    """
    keys: list[str] = []
    holders: list[type[BaseModel]] = [config_class]
    below = holders
    for position, part in enumerate(location):
        tagged = [model for model in below if part in _tags(model)]
        is_last = position == len(location) - 1
        if tagged and not any(part in model.model_fields for model in below) and not is_last:
            below = tagged
            continue
        keys.append(str(part))
        holders = below
        if not isinstance(part, int):
            fields = [model.model_fields[part] for model in below if part in model.model_fields]
            # Where nobody has such a field, it is a name in a mapping of what stands below.
            if fields:
                below = [model for field in fields for model in _nested_models(field.annotation)]
    return keys, holders


def _tags(model: type[BaseModel]) -> set[Any]:
    kind = model.model_fields.get("kind")
    return set(get_args(kind.annotation)) if kind and get_origin(kind.annotation) is Literal else set()


def _nested_models(annotation: Any) -> Iterable[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _nested_models(argument)


def _allowed(keys: list[str], models: list[type[BaseModel]], config_class: type[BaseModel]) -> str:
    siblings = list(dict.fromkeys(name for model in models for name in model.model_fields))
    prefix = keys[:-1]
    near = get_close_matches(keys[-1], siblings, n=1, cutoff=0.6)
    if near:
        return f"did you mean {'.'.join([*prefix, near[0]])}?"
    elsewhere = [dotted for dotted in _dotted_keys(config_class) if dotted.rsplit(".", 1)[-1] == keys[-1]]
    if elsewhere:
        return f"did you mean {' or '.join(elsewhere[:3])}?"
    shown = ", ".join(siblings[:_MAX_SHOWN_KEYS]) + (", ..." if len(siblings) > _MAX_SHOWN_KEYS else "")
    return f"allowed here are {shown}" if siblings else "no keys are allowed here"


def _dotted_keys(model: type[BaseModel], prefix: str = "") -> Iterable[str]:
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}"
        for nested in _nested_models(field.annotation):
            yield from _dotted_keys(nested, f"{prefix}{name}.")


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _MAX_SHOWN_CHARS else text[: _MAX_SHOWN_CHARS - 3] + "..."
