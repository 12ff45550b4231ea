"""JSONL files that are one JSON array are detected in any form, and files whose lines are lists are not."""

import gzip
import json
from pathlib import Path
from typing import BinaryIO

import pytest

from cluster.errors import UserError
from data_prep.sources import jsonl as json_array
from data_prep.sources import jsonl as jsonl_module
from data_prep.sources.config import ColumnsConfig, JsonlConfig
from data_prep.sources.decompress import StreamPart
from data_prep.sources.files import SourceFile
from data_prep.sources.limits import ReadLimits
from data_prep.sources.plan import plan_units
from tests.unit.data_prep.sources.reading import read_all, rule_of


def _records(num: int) -> bytes:
    return b"".join(json.dumps({"content": f"x = {n}\n" * (n % 7)}).encode() + b"\n" for n in range(num))


_OBJECTS = [{"content": f"x = {number}\n", "path": f"{number}.py", "more": [{}, [1]]} for number in range(50)]
_ARRAYS = {
    "compact": json.dumps(_OBJECTS),
    "indented": json.dumps(_OBJECTS, indent=2),
    "an object to a line": "[\n" + ",\n".join(map(json.dumps, _OBJECTS)) + "\n]\n",
    "commas on lines of their own": "[\n" + "\n,\n".join(map(json.dumps, _OBJECTS)) + "\n]\n",
    "one object": "\n [\n" + json.dumps(_OBJECTS[0]) + "\n]\n",
    "cut": json.dumps(_OBJECTS, indent=2)[:-40],
    "cut, an object to a line": ("[\n" + ",\n".join(map(json.dumps, _OBJECTS)))[:-4],
}


@pytest.mark.parametrize("codec", [None, "gz"])
@pytest.mark.parametrize("form", list(_ARRAYS))
def test_a_file_that_is_one_array_is_one_message(tmp_path: Path, form: str, codec: str | None) -> None:
    name = "a.jsonl.gz" if codec else "a.jsonl"
    (tmp_path / name).write_bytes(gzip.compress(_ARRAYS[form].encode()) if codec else _ARRAYS[form].encode())
    for columns in (None, ColumnsConfig(path="path")):
        with pytest.raises(UserError, match=f"{name} is one JSON array.*jq -c"):
            plan_units(JsonlConfig(urls=(str(tmp_path / name),), columns=columns))


def test_an_array_longer_than_the_examined_part_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_array, "MAX_BUFFERED_BYTES", 200)
    for form in ("compact", "indented", "an object to a line", "commas on lines of their own"):
        (tmp_path / "a.jsonl").write_text(_ARRAYS[form])
        with pytest.raises(UserError, match="is one JSON array"):
            plan_units(JsonlConfig(urls=(str(tmp_path / "a.jsonl"),)))


@pytest.mark.parametrize("codec", [None, "gz"])
@pytest.mark.parametrize("form", list(_ARRAYS))
@pytest.mark.parametrize("first", ["a", "c"])
def test_an_array_among_other_files_is_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, form: str, codec: str | None
) -> None:
    """In any number of parts and at any position among the files."""
    monkeypatch.setattr(jsonl_module, "UNIT_BYTES", 300)
    monkeypatch.setattr(json_array, "MAX_BUFFERED_BYTES", 200)
    parts = [StreamPart(number, 3, chunk_bytes=100) for number in range(3)]
    monkeypatch.setattr(jsonl_module, "stream_parts", lambda packed_bytes: parts)
    data = _ARRAYS[form].encode()
    name = f"{first}.jsonl.gz" if codec else f"{first}.jsonl"
    (tmp_path / name).write_bytes(gzip.compress(data) if codec else data)
    (tmp_path / "b.jsonl").write_bytes(_records(3))
    if form.startswith("one"):  # short enough to be parsed completely
        monkeypatch.setattr(json_array, "MAX_BUFFERED_BYTES", 1000)
    for columns in (None, ColumnsConfig(content="content")):
        files = read_all(JsonlConfig(urls=(str(tmp_path / "*"),), columns=columns))
        rows = [file for file in files if file.rejection is not None]
        assert [(file.location, rule_of(file)) for file in rows] == [(f"{name}#end", "broken_record")]
        assert rows[0].rejection is not None
        assert rows[0].rejection.detail == "one JSON array, not one JSON object per line"
        assert len(files) == 4


_BIG = {"content": "x = 1\n" * 2_000_000}
_LONG_ARRAYS = {
    "commas on lines of their own": "[\n" + "\n,\n".join([json.dumps(_OBJECTS[0])] * 200_000) + "\n]\n",
    "a first element that is longer": json.dumps([_BIG, _OBJECTS[0]]),
    "a first element that is longer, indented": json.dumps([_BIG, _OBJECTS[0]], indent=1),
    "white space": " " * (1 << 20) + "\n" * 5000 + json.dumps(_OBJECTS, indent=2),
    "texts": json.dumps(["x = 1\n" * 100] * 20_000, indent=0),
}
_LONG_LINES = {
    "lists of objects": (json.dumps(_OBJECTS) + "\n") * 5000,
    "lists of numbers": (json.dumps(list(range(2000))) + "\n") * 1000,
    "longer than what is looked at": (json.dumps([["x = 1\n"] * 1_000_000]) + "\n") * 2,
}


@pytest.mark.parametrize("form", list(_LONG_ARRAYS))
def test_long_arrays_are_detected(tmp_path: Path, form: str) -> None:
    (tmp_path / "a.jsonl").write_text(_LONG_ARRAYS[form])
    with pytest.raises(UserError, match=r"a.jsonl is one JSON array"):
        plan_units(JsonlConfig(urls=(str(tmp_path / "a.jsonl"),)))
    (tmp_path / "b.jsonl").write_bytes(_records(3))
    files = read_all(JsonlConfig(urls=(str(tmp_path / "*"),)))
    assert [rule_of(file) for file in files] == ["broken_record", None, None, None]


@pytest.mark.parametrize("form", list(_LONG_LINES))
def test_lines_that_are_lists_are_no_array(tmp_path: Path, form: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(_LONG_LINES[form].encode() + _records(3))
    files = read_all(JsonlConfig(urls=(str(tmp_path / "a.jsonl"),)))
    assert [rule_of(file) for file in files[-3:]] == [None, None, None]
    assert len(files) == _LONG_LINES[form].count("\n") + 3


def test_planning_opens_the_first_file_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source may have ten thousand remote files."""
    for number in range(20):
        (tmp_path / f"{number:02}.jsonl").write_bytes(_records(3))
    (tmp_path / "19.jsonl").write_text(_ARRAYS["compact"])
    opened = []
    open_file = SourceFile.open

    def recorded(file: SourceFile, *, sequential: bool = False) -> BinaryIO:
        opened.append(file.label)
        return open_file(file, sequential=sequential)

    monkeypatch.setattr(SourceFile, "open", recorded)
    units = plan_units(JsonlConfig(urls=(str(tmp_path / "*"),)))
    assert set(opened) == {"00.jsonl"}
    opened.clear()
    for unit in units:
        list(unit.reader.read(ReadLimits()))
    assert sorted(opened) == [f"{number:02}.jsonl" for number in range(20)]


def test_ranges_of_valid_lines_do_not_read_the_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl_module, "UNIT_BYTES", 2000)
    (tmp_path / "a.jsonl").write_bytes(_records(200))
    units = plan_units(JsonlConfig(urls=(str(tmp_path / "a.jsonl"),)))
    monkeypatch.setattr(jsonl_module, "is_array_file", lambda file: pytest.fail("asked"))
    assert sum(len(list(unit.reader.read(ReadLimits()))) for unit in units) == 200


@pytest.mark.parametrize("first", ["[1, 2]", "[1, 2", "[", "[7,", '["a", "b"]', "[" * 5000])
def test_a_first_line_that_is_a_list_or_broken_does_not_affect_others(tmp_path: Path, first: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(first.encode() + b"\n" + _records(3))
    files = read_all(JsonlConfig(urls=(str(tmp_path / "a.jsonl"),)))
    assert [rule_of(file) for file in files] == ["broken_record", None, None, None]
