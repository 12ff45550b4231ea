"""Folders of source trees."""

import os
import pickle
from collections import Counter
from pathlib import Path

import pytest

from cluster.errors import UserError
from data_prep.sources.config import DirectoryConfig
from data_prep.sources.limits import MAX_LICENCE_BYTES, ReadLimits
from data_prep.sources.plan import plan_units, read_unit
from data_prep.sources.units import UNIT_BYTES
from tests.hostile_corpus import GOOD_TEXT, write_hostile_tree
from tests.unit.data_prep.sources.reading import read_all, rule_of, rules, texts


@pytest.fixture
def trees(tmp_path: Path) -> Path:
    root = tmp_path / "trees"
    for name in ("b/x.py", "b/sub/y.py", "a/z.py", "a/notes.txt", "top.py", ".git/hidden.py", "a/.ci/run.py"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (root / "a" / "link.py").symlink_to(root / "b" / "x.py")
    return root


def test_repositories_and_order(trees: Path) -> None:
    files = read_all(DirectoryConfig(path=str(trees), suffixes=(".py",)))
    assert [(file.repository, file.path, rule_of(file)) for file in files] == [
        ("a", ".ci/run.py", None),
        ("a", "link.py", "link"),
        ("a", "notes.txt", "suffix"),
        ("a", "z.py", None),
        ("b", "sub/y.py", None),
        ("b", "x.py", None),
        ("trees", "top.py", None),
    ]
    assert files[0].data == b"a/.ci/run.py"
    assert files[1].rejection is not None
    assert files[1].rejection.detail == str(trees / "b" / "x.py")


def test_licence_files_are_read_whatever_the_suffixes_unless_they_are_excluded(trees: Path) -> None:
    for name in ("a/LICENSE", "a/sub/COPYING.txt", "b/LICENSE"):
        (trees / name).parent.mkdir(exist_ok=True)
        (trees / name).write_text(name)
    files = read_all(DirectoryConfig(path=str(trees), suffixes=(".py",), exclude=("b",)))
    found = {(f.repository, f.path): (rule_of(f), f.data) for f in files if not f.path.endswith(".py")}
    assert found == {
        ("a", "LICENSE"): ("suffix", b"a/LICENSE"),
        ("a", "notes.txt"): ("suffix", None),
        ("a", "sub/COPYING.txt"): ("suffix", b"a/sub/COPYING.txt"),
        ("b", "LICENSE"): ("excluded", None),
    }


def test_licence_files_of_repositories_over_the_budget_are_not_read(trees: Path) -> None:
    (trees / "b" / "LICENSE").write_text("MIT")
    files = read_all(DirectoryConfig(path=str(trees), suffixes=(".py",), max_total_bytes=1))
    (licence,) = [file for file in files if file.path == "LICENSE"]
    assert (rule_of(licence), licence.data) == ("budget", None)


def test_licence_files_are_read_whatever_the_size_limits(trees: Path) -> None:
    (trees / "a" / "LICENSE").write_text("MIT")
    (trees / "b" / "LICENSE").write_text("x" * 100)
    (trees / "b" / "COPYING").write_text("x" * (MAX_LICENCE_BYTES + 1))
    files = read_all(DirectoryConfig(path=str(trees)), ReadLimits(min_file_bytes=6, max_file_bytes=10))
    found = {(f.repository, f.path): (rule_of(f), len(f.data or b"")) for f in files}
    assert found["a", "LICENSE"] == ("file_size", 3)
    assert found["b", "LICENSE"] == ("file_size", 100)
    assert found["b", "COPYING"] == ("file_size", 0)
    assert found["a", "notes.txt"] == ("file_size", 0)


def test_all_suffixes_are_read_by_default(trees: Path) -> None:
    assert rules(read_all(DirectoryConfig(path=str(trees))))["notes.txt"] is None


def test_excluded_files_are_rows(trees: Path) -> None:
    files = read_all(DirectoryConfig(path=str(trees), exclude=("b", "*.txt")))
    found = {(file.repository, file.path): rule_of(file) for file in files}
    assert {name for name, rule in found.items() if rule == "excluded"} == {
        ("a", "notes.txt"),
        ("b", "x.py"),
        ("b", "sub/y.py"),
    }


def test_a_tree_can_be_one_repository(trees: Path) -> None:
    files = read_all(DirectoryConfig(path=str(trees), repository="mine"))
    assert {file.repository for file in files} == {"mine"}
    assert ("mine", "b/sub/y.py") in texts(files)


def test_a_folder_named_like_the_root_is_distinguished(tmp_path: Path) -> None:
    (tmp_path / "same" / "same").mkdir(parents=True)
    (tmp_path / "same" / "x.py").write_text("one")
    (tmp_path / "same" / "same" / "x.py").write_text("two")
    files = read_all(DirectoryConfig(path=str(tmp_path / "same")))
    assert [(file.repository, file.path) for file in files] == [("same", "x.py")] * 2
    assert {file.data for file in files} == {b"one", b"two"}


def test_every_file_of_a_malicious_tree_is_one_row_with_the_expected_rule(tmp_path: Path) -> None:
    expected = write_hostile_tree(tmp_path / "corpus")
    files = read_all(DirectoryConfig(path=str(tmp_path / "corpus")))
    assert Counter((f.repository, f.path, rule_of(f)) for f in files) == Counter(
        (f.repository, f.path, f.rule) for f in expected
    )
    assert not any(file.data is not None and b"secret" in file.path.encode() for file in files)


def test_size_limits_apply_without_reading(trees: Path) -> None:
    limits = ReadLimits(min_file_bytes=6, max_file_bytes=10)
    files = read_all(DirectoryConfig(path=str(trees)), limits)
    assert {
        file.path: rule_of(file) for file in files if not file.rejection or file.rejection.rule != "link"
    } == {
        ".ci/run.py": "file_size",
        "notes.txt": "file_size",
        "z.py": None,
        "sub/y.py": None,
        "x.py": None,
        "top.py": None,
    }


def test_a_file_that_grew_since_it_was_planned_is_not_read_beyond_the_limit(trees: Path) -> None:
    (unit,) = plan_units(DirectoryConfig(path=str(trees)))
    (trees / "a" / "z.py").write_bytes(bytes(1000))
    (trees / "b" / "x.py").unlink()
    os.mkfifo(trees / "b" / "x.py")
    found = {file.path: file for file in read_unit(unit, ReadLimits(max_file_bytes=100))}
    assert rule_of(found["z.py"]) == "file_size"
    assert found["z.py"].num_bytes == 101
    assert rule_of(found["x.py"]) == "readable"


def test_missing_and_empty_corpora_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"corpus path .*nowhere is not a folder"):
        plan_units(DirectoryConfig(path=str(tmp_path / "nowhere")))
    with pytest.raises(UserError, match="no usable file: found 0 files in"):
        plan_units(DirectoryConfig(path=str(tmp_path)))
    (tmp_path / "x.py").write_text("")
    with pytest.raises(UserError, match=r"found 1 files in .* .suffixes \.c., 0 excluded"):
        plan_units(DirectoryConfig(path=str(tmp_path), suffixes=(".c",)))
    with pytest.raises(UserError, match="~nobody-of-this-name"):
        plan_units(DirectoryConfig(path="~nobody-of-this-name/x"))


def test_signature_follows_the_files(trees: Path) -> None:
    config = DirectoryConfig(path=str(trees))
    (first,) = plan_units(config)
    assert plan_units(config) == [first]
    assert pickle.loads(pickle.dumps(first)) == first
    os.utime(trees / "a" / "z.py", (1, 1))
    (second,) = plan_units(config)
    (trees / "b" / "x.py").unlink()
    (third,) = plan_units(config)
    assert len({first.signature, second.signature, third.signature}) == 3


def test_relative_paths_and_home_name_the_same_files(trees: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trees.parent)
    monkeypatch.setenv("HOME", str(trees.parent))
    absolute = plan_units(DirectoryConfig(path=str(trees)))
    assert plan_units(DirectoryConfig(path="trees")) == absolute
    assert plan_units(DirectoryConfig(path="~/trees")) == absolute
    assert plan_units(DirectoryConfig(path=f"file://{trees}")) == absolute


def test_budget_keeps_complete_repositories(trees: Path) -> None:
    total = sum(len(data) for data in texts(read_all(DirectoryConfig(path=str(trees)))).values())
    for budget in range(1, total):
        files = read_all(DirectoryConfig(path=str(trees), max_total_bytes=budget))
        kept = {file.repository for file in files if file.data is not None}
        assert sum(len(file.data or b"") for file in files) <= budget
        assert not kept & {file.repository for file in files if rule_of(file) == "budget"}
    assert not any(
        rule_of(f) == "budget" for f in read_all(DirectoryConfig(path=str(trees), max_total_bytes=total))
    )


def test_large_corpora_are_cut_into_units_in_order(tmp_path: Path) -> None:
    for number in range(9):
        folder = tmp_path / f"r{number}"
        folder.mkdir()
        for name in ("a.bin", "b.bin"):
            with (folder / name).open("wb") as file:
                file.truncate(UNIT_BYTES // 4)
    units = plan_units(DirectoryConfig(path=str(tmp_path)))
    assert len(units) == 5
    assert len({unit.name for unit in units}) == len({unit.signature for unit in units}) == 5
    assert all(unit.num_bytes <= UNIT_BYTES for unit in units)
    names = [(f.repository, f.path) for unit in units for f in read_unit(unit, ReadLimits())]
    assert names == sorted(names)
    assert len(names) == 18


def test_an_inaccessible_folder_is_a_row(tmp_path: Path) -> None:
    write_hostile_tree(tmp_path / "corpus")
    deepest = next(Path(f) for f, folders, _ in os.walk(tmp_path / "corpus" / "deep") if not folders)
    descriptor = os.open(deepest, os.O_RDONLY)
    os.mkdir("y" * 100, dir_fd=descriptor)
    os.close(descriptor)
    files = read_all(DirectoryConfig(path=str(tmp_path / "corpus")))
    (folder,) = [file for file in files if file.path.endswith("y" * 100 + "/")]
    assert rule_of(folder) == "readable"
    assert sum(rule_of(file) == "readable" for file in files if file.repository == "deep") == 2
    assert any(file.data is not None and file.data.startswith(GOOD_TEXT) for file in files)


def test_a_source_whose_files_are_all_excluded_is_named(trees: Path) -> None:
    with pytest.raises(UserError, match=r"found 7 files in .*trees, 7 excluded by `exclude`"):
        plan_units(DirectoryConfig(path=str(trees), exclude=("*",)))
