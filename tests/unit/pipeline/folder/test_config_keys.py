"""Every key of a config is of use: a recipe sets it, or a page explains it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from cluster.config import Config
from pipeline.folder.config import RunConfig
from pipeline.folder.experiment_config import ExperimentRunConfig
from pipeline.folder.recipe import (
    experiment_recipe_names,
    load_experiment_config,
    load_run_config,
    run_recipe_names,
)

_ROOT = Path(__file__).parents[4]
_FENCED, _INLINE = re.compile(r"```.*?```", re.DOTALL), re.compile(r"`([^`]+)`")
# What some recipes need from the command line.
_OVERRIDES = {
    "run": ([], ["prep.source.path=corpus"], ["prep.source.urls=[corpus.jsonl]"]),
    "experiment": (
        ["model=m"],
        ["model=m", "task.folder=f"],
        ["model=m", "task.folder=f", "task.train=t"],
        ["model=m", "task.bugs.functions=f"],
    ),
}


def _classes(kind: Any) -> Iterator[type[Config]]:
    """Yield the config classes in an annotation, with those of their fields."""
    if isinstance(kind, type) and issubclass(kind, Config):
        yield kind
        for field in kind.model_fields.values():
            yield from _classes(field.annotation)
    for argument in get_args(kind):
        yield from _classes(argument)


def _set_keys(value: Any) -> Iterator[tuple[type, str]]:
    if isinstance(value, BaseModel):
        for key in value.model_fields_set:
            yield type(value), key
            yield from _set_keys(getattr(value, key))
    elif isinstance(value, dict):
        for each in value.values():
            yield from _set_keys(each)
    elif isinstance(value, tuple):
        for each in value:
            yield from _set_keys(each)


def _first_valid(load: Any, name: str, choices: tuple[list[str], ...]) -> Config:
    for overrides in choices:
        try:
            return load(name, overrides)  # type: ignore[no-any-return]
        except ValueError:
            continue
    raise AssertionError(f"no overrides make {name} valid")


@pytest.fixture(scope="module")
def set_by_recipes() -> set[tuple[type, str]]:
    configs = [
        *(_first_valid(load_run_config, name, _OVERRIDES["run"]) for name in run_recipe_names()),
        *(
            _first_valid(load_experiment_config, name, _OVERRIDES["experiment"])
            for name in experiment_recipe_names()
        ),
    ]
    return {pair for config in configs for pair in _set_keys(config)}


def test_a_recipe_sets_or_a_page_explains_every_key(set_by_recipes: set[tuple[type, str]]) -> None:
    pages = [page.read_text() for page in [*(_ROOT / "docs").glob("*.md"), _ROOT / "README.md"]]
    code = " ".join(
        found for page in pages for found in [*_FENCED.findall(page), *_INLINE.findall(_FENCED.sub("", page))]
    )
    explained = set(re.findall(r"\w+", code))
    classes = {*_classes(RunConfig), *_classes(ExperimentRunConfig)}
    assert len(classes) > 60
    useless = sorted(
        f"{one.__name__}.{key}"
        for one in classes
        for key in one.model_fields
        if key not in explained
        and not any(
            issubclass(other, one) or issubclass(one, other) for other, name in set_by_recipes if name == key
        )
    )
    assert not useless
