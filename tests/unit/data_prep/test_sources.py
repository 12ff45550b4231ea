"""What the sources list."""

import os
from pathlib import Path

import pytest

from cluster.errors import UserError
from data_prep.config import DirectoryConfig, InstalledPythonConfig
from data_prep.sources.installed_python import list_installed_python
from data_prep.sources.listing import input_signature, list_files, within_budget


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    root = tmp_path / "trees"
    for name in ("b/x.py", "b/sub/y.py", "a/z.py", "a/notes.txt", "top.py", ".git/hidden.py"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (root / "a" / "link.py").symlink_to(root / "b" / "x.py")
    return root


def test_directory_repositories_and_order(trees: Path) -> None:
    files = list_files(DirectoryConfig(path=trees))
    assert [(file.repository, file.path) for file in files] == [
        ("a", "z.py"),
        ("b", "sub/y.py"),
        ("b", "x.py"),
        ("trees", "top.py"),
    ]
    assert {file.language for file in files} == {"Python"}
    assert files[0].num_bytes == len("a/z.py")


def test_suffixes_and_exclusion(trees: Path) -> None:
    files = list_files(DirectoryConfig(path=trees, suffixes=(".txt", ".py"), exclude=("b", "top*")))
    assert [(file.repository, file.path) for file in files] == [("a", "notes.txt"), ("a", "z.py")]


def test_file_names_that_are_not_utf8(trees: Path) -> None:
    with open(os.fsencode(trees / "a") + b"/\xff.py", "w") as file:
        file.write("x = 1\n")
    listed = [file for file in list_files(DirectoryConfig(path=trees)) if file.path == "\\xff.py"]
    assert len(listed) == 1
    assert Path(listed[0].absolute).read_text() == "x = 1\n"


def test_missing_and_empty_corpora(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"corpus path .*nowhere is not a folder"):
        list_files(DirectoryConfig(path=tmp_path / "nowhere"))
    with pytest.raises(UserError, match="no usable file: found 0 files"):
        list_files(DirectoryConfig(path=tmp_path))
    (tmp_path / "x.py").write_text("")
    with pytest.raises(UserError, match="found 1 files in .*, 1 excluded"):
        list_files(DirectoryConfig(path=tmp_path, exclude=("*.py",)))


def test_signature_follows_the_files(trees: Path) -> None:
    config = DirectoryConfig(path=trees)
    first = input_signature(config)
    assert input_signature(config) == first
    os.utime(trees / "a" / "notes.txt", (1, 1))
    assert input_signature(config) == first
    os.utime(trees / "a" / "z.py", (1, 1))
    second = input_signature(config)
    assert second != first
    (trees / "b" / "x.py").unlink()
    assert input_signature(config) not in (first, second)


def test_budget_keeps_whole_repositories(trees: Path) -> None:
    files = list_files(DirectoryConfig(path=trees))
    assert within_budget(files, None) == {"a", "b", "trees"}
    for budget in range(1, 60):
        chosen = within_budget(files, budget)
        assert sum(file.num_bytes for file in files if file.repository in chosen) <= budget
    assert within_budget(files, 59) == {"a", "b", "trees"}


def test_installed_python_has_the_library_and_pure_distributions() -> None:
    files = list_installed_python()
    by_repository = {file.repository: file for file in files}
    assert by_repository["python/asyncio"].licence == "PSF-2.0"
    assert any(file.repository == "python/ast" and file.path == "ast.py" for file in files)
    assert {"pytest", "typer", "fsspec"} <= set(by_repository)
    assert by_repository["pytest"].licence is not None
    # Not pure Python; ourselves.
    assert not {"numpy", "permcode"} & set(by_repository)
    assert not any(file.repository.startswith("python/site") and "packages" in file.path for file in files)


def test_installed_python_lists_each_file_once() -> None:
    files = list_files(InstalledPythonConfig())
    assert len({file.absolute for file in files}) == len(files)
    assert len({(file.repository, file.path) for file in files}) == len(files)
    assert not any(Path(file.path).is_absolute() or ".." in file.path.split("/") for file in files)
    assert [(f.repository, f.path) for f in files] == sorted((f.repository, f.path) for f in files)
