"""Where pairs stand."""

import json
from pathlib import Path

import pytest

from cluster.errors import UserError
from finetune.formats.pair_files import PairFiles


def test_side_in_the_name_means_two_files_and_source_and_target_give_the_direction(tmp_path: Path) -> None:
    (tmp_path / "test.java").write_text("a\nb\n")
    (tmp_path / "test.cs").write_text("A\nB\n")
    there = PairFiles(folder=tmp_path, test="test.{side}", source="java", target="cs")
    back = PairFiles(folder=tmp_path, test="test.{side}", source="cs", target="java")
    assert there.read("test") == [("a", "A"), ("b", "B")]
    assert back.read("test") == [("A", "a"), ("B", "b")]
    assert there.read("train") == []
    assert there.files() == [tmp_path / "test.java", tmp_path / "test.cs"]


def test_without_side_they_are_fields(tmp_path: Path) -> None:
    (tmp_path / "dev.json").write_text(json.dumps({"nl": "add", "code": "+"}))
    files = PairFiles(folder=tmp_path, test="dev.json", source="nl", target="code")
    assert files.read("test") == [("add", "+")]
    assert files.files() == [tmp_path / "dev.json"]


def test_one_side_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="source and target are both 'cs'"):
        PairFiles(folder=tmp_path, test="test.{side}", source="cs", target="cs").read("test")
