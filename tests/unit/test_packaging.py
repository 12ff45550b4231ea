"""Our import names are plain words: nobody else may provide them, and all are packaged."""

import importlib.metadata
import tomllib
from pathlib import Path

from cluster.jobs import PACKAGES

ROOT = Path(__file__).resolve().parents[2]


def test_no_other_distribution_provides_our_names() -> None:
    owners_of = importlib.metadata.packages_distributions()
    owners = {name: set(owners_of.get(name, [])) - {"permcode"} for name in PACKAGES}
    assert owners == {name: set() for name in PACKAGES}


def test_exactly_our_packages_are_packaged_and_never_uploaded() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    include = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert sorted(include) == sorted([*PACKAGES, *(f"{name}.*" for name in PACKAGES)])
    assert "Private :: Do Not Upload" in project["project"]["classifiers"]


def test_every_folder_with_code_is_a_package() -> None:
    for name in PACKAGES:
        folders = {file.parent for file in (ROOT / name).rglob("*.py")}
        assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
