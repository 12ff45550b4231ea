"""What the code imports by name is declared in pyproject.toml, not borrowed from another package's needs."""

import ast
import importlib.metadata
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cluster.jobs import PACKAGES

ROOT = Path(__file__).resolve().parents[3]
# The distribution where several share an import name: MLflow's parts all bring `mlflow`.
DISTRIBUTION_OF = {"mlflow": "mlflow"}
# PyTorch's builds for CUDA bring Triton; on other machines nothing imports it.
BROUGHT_BY_TORCH = {"triton"}


def imported_names(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from (alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module.partition(".")[0]


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_import_is_declared(package: str) -> None:
    owners_of = importlib.metadata.packages_distributions()
    names = set(imported_names(ROOT / package)) - set(PACKAGES) - sys.stdlib_module_names - BROUGHT_BY_TORCH
    owners = {name: DISTRIBUTION_OF.get(name) or owners_of[name][0] for name in names}
    assert {name for name, owner in owners.items() if canonicalize_name(owner) not in declared()} == set()


def test_every_declared_package_is_pinned() -> None:
    pinned = {
        canonicalize_name(Requirement(line).name)
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    }
    assert declared() - pinned == set()
