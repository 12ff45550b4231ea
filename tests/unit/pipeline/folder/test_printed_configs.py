"""Every config that a page prints is a valid one."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from finetune.experiment.kinds import TaskConfig
from pipeline.folder.recipe import load_experiment_config, load_run_config, recipe_names

_ROOT = Path(__file__).parents[4]
_BLOCK = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
_PRINTED = [
    pytest.param(block[1], id=f"{page.name}-{number}")
    for page in (_ROOT / "README.md", *sorted((_ROOT / "docs").glob("*.md")))
    for number, block in enumerate(_BLOCK.finditer(page.read_text(encoding="utf-8")), start=1)
]


@pytest.mark.parametrize("block", _PRINTED)
def test_a_printed_config_is_valid(block: str, tmp_path: Path) -> None:
    values = yaml.safe_load(block)
    recipe = tmp_path / "printed.yaml"
    if "task" in values and "systems" not in values:
        TypeAdapter[Any](TaskConfig).validate_python(values["task"])
        return
    if "task" in values:
        recipe.write_text(block)
        load_experiment_config(str(recipe), ["model=runs/any"])
        return
    if not {"prep", "pretrain"} <= set(values):  # a section of a recipe
        demo = yaml.safe_load((_ROOT / "pipeline/recipes/demo.yaml").read_text(encoding="utf-8"))
        values = _merged(demo, values)
    recipe.write_text(yaml.safe_dump(values))
    load_run_config(str(recipe))


def test_the_pages_print_configs() -> None:
    assert len(_PRINTED) > 15


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_s_header_says_how_it_is_run(name: str) -> None:
    head = re.match(r"(?:#.*\n)+", (_ROOT / f"pipeline/recipes/{name}.yaml").read_text(encoding="utf-8"))
    assert head is not None
    assert re.search(rf"^#     permcode (run|finetune) --recipe {name} .*--out DIR", head[0], re.MULTILINE)


def _merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(values)
    for key, change in changes.items():
        below = both.get(key)
        both[key] = (
            _merged(below, change) if isinstance(below, Mapping) and isinstance(change, Mapping) else change
        )
    return both
