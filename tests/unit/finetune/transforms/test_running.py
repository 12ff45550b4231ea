"""Transformed Python is run beside the original."""

import colorsys
import difflib
import heapq
import importlib
import inspect
import textwrap
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from finetune.transforms.kinds import TRANSFORMS, transform
from tests.unit.finetune.transforms.python_programs import functions

_words = st.text(alphabet="ab c\n", max_size=30)


def _outcome(code: str, arguments: tuple[int, ...]) -> Any:
    """What `run` gives back, or the type of what it raises."""
    space: dict[str, Any] = {}
    exec(compile(code, "<example>", "exec", dont_inherit=True), space)
    try:
        return space["run"](*arguments)
    except Exception as error:
        return type(error)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(code=functions, seed=st.integers(0, 3), a=st.integers(-2, 4), b=st.integers(-2, 4))
def test_random_functions_do_the_same(code: str, seed: int, a: int, b: int) -> None:
    wanted = _outcome(code, (a, b, 1))
    changed = code
    for kind in TRANSFORMS:
        alone = transform(kind, code, "python", seed)
        assert alone is None or _outcome(alone, (a, b, 1)) == wanted, alone
        changed = transform(kind, changed, "python", seed) or changed
    assert _outcome(changed, (a, b, 1)) == wanted, changed


def test_random_functions_are_changed_by_every_transform() -> None:
    changed = dict.fromkeys(TRANSFORMS, 0)

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(code=functions)
    def count(code: str) -> None:
        for kind in TRANSFORMS:
            changed[kind] += transform(kind, code, "python", 1) is not None

    count()
    assert min(changed.values()) > 5


def _transformed_module(module: ModuleType, kind: str) -> ModuleType:
    source = transform(kind, inspect.getsource(module), "python", 5)
    assert source is not None
    made = ModuleType(module.__name__)
    exec(compile(source, module.__name__, "exec", dont_inherit=True), made.__dict__)
    return made


@pytest.fixture(scope="module")
def modules() -> dict[tuple[str, str], ModuleType]:
    """textwrap, difflib, heapq and colorsys, each with every transform that changes it."""
    made = {}
    for module in (textwrap, difflib, heapq, colorsys):
        for kind in TRANSFORMS:
            if transform(kind, inspect.getsource(module), "python", 5) is not None:
                made[module.__name__, kind] = _transformed_module(module, kind)
    return made


def test_every_transform_changes_a_library_module(modules: dict[tuple[str, str], ModuleType]) -> None:
    assert {kind for _, kind in modules} == set(TRANSFORMS)
    assert len(modules) >= 14


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=_words, other=_words, width=st.integers(5, 20), numbers=st.lists(st.integers(), max_size=20))
def test_library_modules_do_the_same(
    modules: dict[tuple[str, str], ModuleType], text: str, other: str, width: int, numbers: list[int]
) -> None:
    def results(module: ModuleType, name: str) -> list[Any]:
        if name == "textwrap":
            return [module.wrap(text, width), module.dedent(text), module.indent(text, "> ")]
        if name == "difflib":
            lines = text.splitlines(), other.splitlines()
            return [list(module.unified_diff(*lines)), list(module.ndiff(*lines)),
                    module.SequenceMatcher(None, text, other).get_opcodes()]  # fmt: skip
        if name == "heapq":
            heap = list(numbers)
            module.heapify(heap)
            popped = [module.heappop(heap) for _ in numbers]
            return [popped, module.nlargest(3, numbers), list(module.merge(sorted(numbers), [1, 5]))]
        return [module.rgb_to_hsv(width / 20, len(text) / 40, 0.3), module.hls_to_rgb(0.2, width / 20, 0.5)]

    for (name, _), module in modules.items():
        assert results(module, name) == results(importlib.import_module(name), name)
