"""cluster < data_prep < pretrain < finetune < pipeline: a package imports only those to its left."""

import ast
from pathlib import Path

import pytest

ORDER = ("cluster", "data_prep", "pretrain", "finetune", "pipeline")
PART_ORDERS = {
    "data_prep": (
        *("documents", "tokenizers", "tokenizer", "text", "pseudo_random", "sources", "finished"),
        *("decontamination", "corpus", "dedup", "filters", "secrets", "config", "repository_order"),
        *("steps", "forget", "stage"),
    ),
    "pretrain": (
        *("model", "objective", "lane_memory", "randomness", "device_copies", "orders", "data", "schedule"),
        *("config", "files", "agreement", "journal", "engine", "weights", "checkpoint", "health"),
        *("evaluation", "goodput", "figures", "run", "run_context", "resume", "step_figures", "step"),
        *("trainer", "pretrainer", "plan", "gpu_check", "worker_failures", "workers", "attempt", "joined"),
        *("ray_workers", "worker", "audit", "stage", "inference", "hf"),
    ),
    "finetune": (
        *("languages", "held_out", "syntax", "lexing", "metrics", "transforms", "modalities", "formats"),
        *("bugs", "sandbox", "training", "functions", "lexical", "tasks", "layers", "decoding", "systems"),
        "experiment",
    ),
    "pipeline": ("folder", "editor", "mlflow", "report", "run", "schedulers", "commands", "cli"),
}
"""Of each package its folders and files; each imports only those before it."""
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


@pytest.mark.parametrize("package", PART_ORDERS)
def test_the_parts_of_a_package_import_only_those_before_them(package: str) -> None:
    order = PART_ORDERS[package]
    folder = ROOT / package
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    assert {path.parent.name for path in folder.glob("*/__init__.py")} | files == set(order)
    wrong = {}
    for number, part in enumerate(order):
        forbidden = {f"{package}.{later}" for later in order[number + 1 :]}
        for file in [*(folder / part).rglob("*.py"), *folder.glob(f"{part}.py")]:
            modules = imported_modules(file.read_text(encoding="utf-8"))
            if found := {one for one in modules if ".".join(one.split(".")[:2]) in forbidden}:
                wrong[str(file.relative_to(ROOT))] = found
    assert wrong == {}


def test_the_check_sees_every_form_of_import() -> None:
    source = "import pipeline.cli\ndef f():\n    from finetune import tasks\n    from . import x\n"
    assert imported_packages(source) == {"pipeline", "finetune", "."}
