"""Reads a recipe and dotted overrides into a validated config."""

from collections.abc import Hashable, Mapping, Sequence
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from cluster.errors import UserError
from pipeline.folder.differences import flatten

if TYPE_CHECKING:
    from cluster.config import Config
    from pipeline.folder.config import RunConfig
    from pipeline.folder.experiment_config import ExperimentRunConfig

_SOURCE = ["prep", "source"]
_SETS = ["prep", "decontamination", "sets"]
AnyConfig = TypeVar("AnyConfig", bound="Config")


class _Loader(yaml.SafeLoader):
    """A YAML loader that refuses a key given twice, where PyYAML would silently keep the last value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r} cannot be a key", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def recipe_names() -> list[str]:
    """Return the names of the recipes that ship with permcode, sorted."""
    folder = files("pipeline") / "recipes"
    return sorted(
        entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")
    )


def run_recipe_names() -> list[str]:
    """Return the names of the shipped recipes for `permcode run`, sorted."""
    return [name for name in recipe_names() if not _is_experiment(_read_recipe(name))]


def experiment_recipe_names() -> list[str]:
    """Return the names of the shipped recipes for `permcode finetune --from`, sorted."""
    return [name for name in recipe_names() if _is_experiment(_read_recipe(name))]


def load_run_config(recipe: str, overrides: Sequence[str] = ()) -> "RunConfig":
    """Return the config that `recipe` (a name, or the path of a YAML file) and `overrides` (`a.b=value`) describe.

    The order of overrides makes no difference; a key given twice is refused. Raises UserError with one line that names
    every problem. Problems of tasks and systems may be reported only after the others are fixed, because their classes
    take seconds to import.
    """
    values = _run_values(recipe, overrides)

    from pipeline.folder.config import RunConfig

    return _validated(RunConfig, values)


def load_experiment_config(recipe: str, overrides: Sequence[str] = ()) -> "ExperimentRunConfig":
    """Return the config of an experiment that `recipe` and `overrides` describe; like `load_run_config`."""
    values = _experiment_values(recipe, overrides)

    from pipeline.folder.experiment_config import ExperimentRunConfig

    return _validated(ExperimentRunConfig, values)


def _run_values(recipe: str, overrides: Sequence[str]) -> dict[str, Any]:
    values = _read_recipe(recipe)
    if _is_experiment(values):
        raise UserError(
            f"recipe {recipe} is for an experiment: use "
            f"`permcode finetune --from RUN --recipe {recipe} --out DIR`"
        )
    _override(values, overrides)

    from pipeline.folder.sections import RunSections

    _validated(RunSections, values)
    return values


def _experiment_values(recipe: str, overrides: Sequence[str]) -> dict[str, Any]:
    values = _read_recipe(recipe)
    if not _is_experiment(values) and {"pretrain", "finetune"} & set(values):
        raise UserError(
            f"recipe {recipe} is for a whole run, not for an experiment: leave --from out, or give one of "
            f"{', '.join(experiment_recipe_names())}"
        )
    _override(values, overrides)

    from pipeline.folder.sections import ExperimentSections

    _validated(ExperimentSections, values)
    return values


def _override(values: dict[str, Any], overrides: Sequence[str]) -> None:
    check_given_once(overrides)
    for override in sorted(overrides, key=_precedence):
        apply_override(values, override)


def _validated(config_class: type[AnyConfig], values: dict[str, Any]) -> AnyConfig:
    from pydantic import ValidationError

    from pipeline.folder.config_errors import explain

    try:
        return config_class.model_validate(values)
    except ValidationError as error:
        raise UserError(explain(error, config_class)) from None


def check_given_once(overrides: Sequence[str]) -> None:
    """Raise UserError for a key that two overrides set, also where one of them sets it within `above={key: value}`."""
    first: dict[str, Any] = {}
    for override in overrides:
        key, _, text = override.partition("=")
        for inner, value in _keys_set(key, text).items():
            if inner in first:
                raise UserError(f"{inner} is given twice ({first[inner]} and {value}): give it once")
            first[inner] = value


def _keys_set(key: str, text: str) -> dict[str, Any]:
    """Return the dotted keys that an override sets, with their values: several where the value is a mapping."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:  # reported where the override is applied
        return {key: text}
    return flatten({key: value}) if isinstance(value, dict) and value else {key: text}


def apply_override(values: dict[str, Any], override: str) -> None:
    """Set one `a.b=value` in nested `values`; the value is read as YAML.

    A new `kind` of a source removes the source's other keys, which belong to the old kind. An evaluation set whose
    `path` or `package` is given becomes required, whatever the recipe says: otherwise a misspelt path would silently
    switch off the decontamination against this set.
    """
    dotted, equals, text = override.partition("=")
    keys = dotted.split(".")
    if not equals or not all(keys):
        raise UserError(
            f"cannot read the override {override!r}: write key.subkey=value, e.g. pretrain.num_steps=100"
        )
    target = values
    for depth, key in enumerate(keys[:-1], start=1):
        below = target.get(key)
        if below is None:
            below = target[key] = {}
        if not isinstance(below, dict):
            above = ".".join(keys[:depth])
            raise UserError(
                f"cannot set {dotted}: {above} is {below!r} in the recipe and has no keys below it"
            )
        target = below
    value = _parse(text, where=f"the override {override!r}")
    if _is_kind_of_source(keys) and target.get("kind") != value:
        target.clear()
    if _is_origin_of_set(keys):
        target.pop("required", None)
    target[keys[-1]] = value


def _precedence(override: str) -> tuple[int, bool]:
    """Return a sort key that puts an override before those of keys it replaces or removes.

    These are a whole mapping, the kind of a source (removes its keys) and the place of an evaluation set (removes
    `required`).
    """
    keys = override.partition("=")[0].split(".")
    return len(keys), not (_is_kind_of_source(keys) or _is_origin_of_set(keys))


def _is_kind_of_source(keys: list[str]) -> bool:
    return keys[:2] == _SOURCE and keys[-1] == "kind"


def _is_origin_of_set(keys: list[str]) -> bool:
    return keys[:-2] == _SETS and keys[-1] in ("path", "package")


def _read_recipe(recipe: str) -> dict[str, Any]:
    values = _parse(_recipe_text(recipe), where=f"recipe {recipe}")
    if not isinstance(values, dict):
        raise UserError(f"recipe {recipe} is not a mapping of config keys: see {_shipped()}")
    return values


def _is_experiment(values: Mapping[str, Any]) -> bool:
    return "task" in values or "systems" in values


def _recipe_text(recipe: str) -> str:
    names = recipe_names()
    if recipe in names:
        return (files("pipeline") / "recipes" / f"{recipe}.yaml").read_text(encoding="utf-8")
    path = Path(recipe)
    try:
        if path.is_file():
            return path.read_text(encoding="utf-8")
        is_folder = recipe != "" and path.is_dir()
    except UnicodeDecodeError:
        raise UserError(f"recipe {recipe} is not a text file (UTF-8)") from None
    except OSError as error:
        raise UserError(f"recipe {recipe} cannot be read ({error.strerror}): {_shipped()}") from error
    if is_folder:
        raise UserError(f"recipe {recipe} is a folder: give the path of a YAML file, or a name: {_shipped()}")
    near = get_close_matches(path.name.removesuffix(".yaml"), names, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise UserError(f"unknown recipe {recipe!r}: {hint}{_shipped()}, or give the path of a YAML file")


def _shipped() -> str:
    return f"the recipes are {', '.join(recipe_names())}"


def _parse(text: str, where: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 (a SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise UserError(f"{where} is not YAML{place}: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{where} is not YAML: {' '.join(str(error).split())}") from None
