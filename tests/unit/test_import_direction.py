"""cluster < data_prep < pretrain < finetune < pipeline: a package imports only those to its left."""

import ast
from pathlib import Path

import pytest

ORDER = ("cluster", "data_prep", "pretrain", "finetune", "pipeline")
FOLDER_ORDERS = {
    "finetune": (
        *("transforms", "metrics", "modalities", "formats", "bugs", "sandbox", "decoding", "layers"),
        *("systems", "tasks", "training", "experiment"),
    ),
    "pipeline": ("folder", "report", "mlflow", "run", "commands"),
}
ROOT = Path(__file__).resolve().parents[2]


def imported_packages(source: str) -> set[str]:
    """The first names of everything imported, also inside functions; relative imports are named "."."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." if node.level else (node.module or "").split(".")[0])
    return names


def imported_modules(source: str) -> set[str]:
    """The full names of everything imported by absolute imports; of `from a import b` it is `a.b`."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("package", ORDER)
def test_package_imports_only_those_to_its_left(package: str) -> None:
    forbidden = {".", *ORDER[ORDER.index(package) + 1 :]}
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    wrong = {
        str(file.relative_to(ROOT)): found
        for file in files
        if (found := imported_packages(file.read_text(encoding="utf-8")) & forbidden)
    }
    assert wrong == {}


@pytest.mark.parametrize("package", FOLDER_ORDERS)
def test_the_folders_of_a_package_import_only_those_to_their_left(package: str) -> None:
    order = FOLDER_ORDERS[package]
    assert {path.parent.name for path in (ROOT / package).glob("*/__init__.py")} == set(order)
    wrong = {}
    for number, folder in enumerate(order):
        forbidden = {f"{package}.{later}" for later in (*order[number + 1 :], "cli")}
        files = sorted((ROOT / package / folder).rglob("*.py"))
        assert files
        for file in files:
            modules = imported_modules(file.read_text(encoding="utf-8"))
            if found := {one for one in modules if ".".join(one.split(".")[:2]) in forbidden}:
                wrong[str(file.relative_to(ROOT))] = found
    assert wrong == {}


def test_the_check_sees_every_form_of_import() -> None:
    source = "import pipeline.cli\ndef f():\n    from finetune import tasks\n    from . import x\n"
    assert imported_packages(source) == {"pipeline", "finetune", "."}
