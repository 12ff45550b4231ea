"""A plain wheel holds everything: packages, recipes, the report's template, the page, the command line."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"cluster", "data_prep", "pretrain", "finetune", "pipeline"}


def run(command: list[str], cwd: Path, python_path: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if python_path is not None:
        environment["PYTHONPATH"] = str(python_path)
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel of this tree was installed, without its dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    # Built from a copy: setuptools leaves build products beside the sources.
    tree = folder / "tree"
    for package in PACKAGES:
        # Other tests may be writing byte code beside the sources.
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder / "dist"),
        str(tree),
    ]
    run(build, folder)
    (wheel,) = (folder / "dist").glob("permcode-*.whl")
    target = folder / "installed"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(target),
    ]
    run([*install, str(wheel)], folder)
    return target


def test_the_wheel_holds_our_packages_and_nothing_else(installed: Path) -> None:
    folders = {path.name for path in installed.iterdir() if path.is_dir()}
    assert {name for name in folders if not name.endswith(".dist-info") and name != "bin"} == PACKAGES


def test_every_source_file_is_in_the_wheel(installed: Path) -> None:
    for package in PACKAGES:
        for pattern in ("*.py", "*.cpp", "*.h"):
            source = {path.relative_to(ROOT) for path in (ROOT / package).rglob(pattern)}
            packed = {path.relative_to(installed) for path in (installed / package).rglob(pattern)}
            assert packed == source


def test_recipes_template_and_page_are_found_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    program = (
        "import pipeline\n"
        "from importlib.resources import files\n"
        "from pipeline.folder.recipe import load_run_config, run_recipe_names\n"
        "print(pipeline.__file__)\n"
        "print([load_run_config(name).seed for name in run_recipe_names()])\n"
        "print(len((files('pipeline') / 'templates' / 'report.html.j2').read_text()) > 1000)\n"
        "from pipeline.editor.page import Page\n"
        "print(Page().response().body.endswith(b'</html>\\n'))\n"
    )
    where, seeds, has_template, has_page = run(
        [sys.executable, "-c", program], tmp_path, installed
    ).splitlines()
    assert Path(where).is_relative_to(installed)
    assert (seeds, has_template, has_page) == ("[0, 0, 0, 0, 0, 0, 0, 0]", "True", "True")


def test_the_command_line_works_from_another_folder(installed: Path, tmp_path: Path) -> None:
    text = run([sys.executable, "-m", "pipeline.cli", "--help"], tmp_path, installed)
    for command in ("run", "prep", "pretrain", "finetune", "report", "submit", "doctor"):
        assert f"\n  {command} " in text
