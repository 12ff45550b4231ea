"""cluster < data_prep < pretrain < finetune < pipeline: a package imports only those to its left."""

import ast
from pathlib import Path

import pytest

ORDER = ("cluster", "data_prep", "pretrain", "finetune", "pipeline")
PIPELINE_ORDER = ("folder", "report", "mlflow", "run", "commands")
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


@pytest.mark.parametrize("folder", PIPELINE_ORDER)
def test_a_folder_of_pipeline_imports_only_those_to_its_left(folder: str) -> None:
    forbidden = tuple(
        f"pipeline.{later}" for later in (*PIPELINE_ORDER[PIPELINE_ORDER.index(folder) + 1 :], "cli")
    )
    files = sorted((ROOT / "pipeline" / folder).rglob("*.py"))
    assert files
    wrong = {
        str(file.relative_to(ROOT)): found
        for file in files
        if (
            found := [
                node.module
                for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(forbidden)
            ]
        )
    }
    assert wrong == {}


def test_the_check_sees_every_form_of_import() -> None:
    source = "import pipeline.cli\ndef f():\n    from finetune import tasks\n    from . import x\n"
    assert imported_packages(source) == {"pipeline", "finetune", "."}
