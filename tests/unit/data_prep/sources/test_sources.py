"""What the sources list."""

import errno
import os
from pathlib import Path

import pytest

from cluster.errors import UserError
from data_prep.config import DirectoryConfig, FiltersConfig, InstalledPythonConfig
from data_prep.reading import read_file
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


def test_signature_follows_the_interpreter_that_parses(trees: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = DirectoryConfig(path=trees)
    text = DirectoryConfig(path=trees, suffixes=(".txt",))
    before = input_signature(python), input_signature(text)
    monkeypatch.setattr("data_prep.sources.listing.sys.version_info", (3, 99, 0))
    assert input_signature(python) != before[0]
    assert input_signature(text) == before[1]


def test_relative_path_lists_the_same_names_at_absolute_places(
    trees: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trees.parent)
    relative = list_files(DirectoryConfig(path=Path("trees")))
    assert relative == list_files(DirectoryConfig(path=trees))
    assert all(Path(file.absolute).is_absolute() for file in relative)


def test_home_of_an_unknown_user(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"corpus path ~nobody-of-this-name/x is not a folder"):
        list_files(DirectoryConfig(path=Path("~nobody-of-this-name/x")))


def _deep_folder(root: Path, num_bytes: int) -> Path:
    """A folder whose path is that long: what lies in it can be out of the system's reach, even root's."""
    path = root
    while num_bytes - len(str(path)) > 250:
        path = path / ("d" * 200)
    path = path / ("e" * (num_bytes - len(str(path)) - 1))
    path.mkdir(parents=True)
    return path


def _make_below(folder: Path, name: str, is_folder: bool) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if is_folder:
            os.mkdir(name, dir_fd=descriptor)
        else:
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    finally:
        os.close(descriptor)


def test_file_out_of_reach_is_listed_and_dropped_as_unreadable(trees: Path) -> None:
    deep = _deep_folder(trees / "a", 4050)
    _make_below(deep, "x" * 97 + ".py", is_folder=False)
    (file,) = [
        file
        for file in list_files(DirectoryConfig(path=trees))
        if file.path.endswith("x.py")
        if "ddd" in file.path
    ]
    outcome = read_file(file, FiltersConfig())
    assert (outcome.rule, outcome.value) == ("readable", float(errno.ENAMETOOLONG))


def test_folder_out_of_reach_is_named(trees: Path) -> None:
    deep = _deep_folder(trees / "a", 4050)
    _make_below(deep, "x" * 100, is_folder=True)
    with pytest.raises(
        UserError, match=r"folder .*/x{100} of the corpus cannot be read \(File name too long\)"
    ):
        list_files(DirectoryConfig(path=trees))


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
