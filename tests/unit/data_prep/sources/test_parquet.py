"""Parquet files, and the published columns of known datasets."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import UserError
from data_prep.documents import RawFile
from data_prep.sources import parquet as parquet_module
from data_prep.sources.config import ColumnsConfig, JsonlConfig, ParquetConfig, Preset
from data_prep.sources.limits import ReadLimits
from data_prep.sources.parquet import ParquetPart
from data_prep.sources.plan import plan_units, read_unit
from tests.unit.data_prep.sources.reading import read_all, rule_of

# One record of each dataset as it is published, and the file that it holds.
_PUBLISHED: dict[Preset, list[tuple[dict[str, Any], RawFile]]] = {
    "the_stack_v1": [
        (
            {
                "hexsha": "0", "size": 2, "ext": "py", "lang": "Python", "max_stars_repo_path": "a.py",
                "max_stars_repo_name": "o/r", "max_stars_repo_licenses": ["MIT", "BSD-3-Clause"],
                "max_stars_count": 3, "max_forks_repo_path": "other.py", "content": "x\n",
            },
            RawFile("o/r", "a.py", "#0", 2, b"x\n", None, "Python", "BSD-3-Clause AND MIT", 3),
        )
    ],
    "the_stack_v2": [
        (
            {
                "blob_id": "0", "path": "/a.py", "repo_name": "o/r", "detected_licenses": ["MIT"],
                "license_type": "permissive", "star_events_count": 4, "language": "Python", "content": "x\n",
            },
            RawFile("o/r", "/a.py", "#0", 2, b"x\n", None, "Python", "MIT", 4),
        ),
        (
            {
                "repo_name": "o/r", "star_events_count": 4,
                "files": [{"blob_id": "0", "path": "/a.py", "language": "Go", "detected_licenses": ["MIT"],
                           "content": "x\n"}],
            },
            RawFile("o/r", "/a.py", "#0.0", 2, b"x\n", None, "Go", "MIT", 4),
        ),
    ],
    "codesearchnet": [
        (
            {
                "repo": "o/r", "path": "a.py", "func_name": "f", "original_string": "def f(): 'doc'\n",
                "language": "python", "code": "def f():\n", "docstring": "doc", "partition": "train",
            },
            RawFile("o/r", "a.py", "#0", 15, b"def f(): 'doc'\n", None, "python"),
        ),
        (
            {
                "repository_name": "o/r", "func_path_in_repository": "a.py", "func_name": "f",
                "whole_func_string": "def f(): 'doc'\n", "language": "python", "func_code_string": "def f():",
            },
            RawFile("o/r", "a.py", "#0", 15, b"def f(): 'doc'\n", None, "python"),
        ),
    ],
    "starcoderdata": [
        (
            {"max_stars_repo_path": "a.py", "max_stars_repo_name": "o/r", "max_stars_count": 5, "id": "1",
             "content": "x\n"},
            RawFile("o/r", "a.py", "#0", 2, b"x\n", None, None, None, 5),
        )
    ],
}  # fmt: skip


def _table(path: Path, columns: dict[str, Any], row_group_size: int = 100) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return path


def _config(path: Path, **settings: Any) -> ParquetConfig:
    return ParquetConfig(urls=(str(path),), **settings)


def _many(num: int) -> dict[str, Any]:
    return {
        "content": [f"x = {n}\n" * (n % 9) for n in range(num)],
        "repository": [f"r{n % 3}" for n in range(num)],
        "path": [f"{n}.py" for n in range(num)],
    }


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("preset", list(_PUBLISHED))
def test_presets_read_the_published_columns(tmp_path: Path, preset: Preset, kind: str) -> None:
    for number, (record, expected) in enumerate(_PUBLISHED[preset]):
        path = tmp_path / f"{number}.{kind}"
        if kind == "jsonl":
            path.write_text(json.dumps(record))
            (file,) = read_all(JsonlConfig(urls=(str(path),), preset=preset))
        else:
            pq.write_table(pa.Table.from_pylist([record]), path)
            (file,) = read_all(ParquetConfig(urls=(str(path),), preset=preset))
        assert file.location == path.name + expected.location
        assert RawFile(file.repository, file.path, expected.location, *_rest(file)) == expected


def _rest(file: RawFile) -> tuple[Any, ...]:
    return (file.num_bytes, file.data, file.rejection, file.language, file.licence, file.stars)


def test_lists_of_identifiers_have_no_content(tmp_path: Path) -> None:
    path = _table(tmp_path / "ids.parquet", {"blob_id": ["0"], "path": ["a.py"]})
    with pytest.raises(
        UserError, match=r"none of its Parquet files can be read .*no column content or files among"
    ):
        plan_units(_config(path, preset="the_stack_v2"))
    _table(tmp_path / "good.parquet", {"content": ["x"]})
    assert [rule_of(f) for f in read_all(_config(tmp_path / "*.parquet", preset="the_stack_v2"))] == [
        None,
        "no_content",
    ]
    files = [[{"blob_id": "0", "path": "a.py"}], []]
    path = _table(tmp_path / "grouped.parquet", {"repo_name": ["o/r", "o/s"], "files": files})
    found = read_all(_config(path, preset="the_stack_v2"))
    assert [rule_of(file) for file in found] == ["no_content"] * 2
    assert (found[0].repository, found[0].path) == ("o/r", "a.py")


def test_row_groups_are_units_and_have_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _table(tmp_path / "x.parquet", _many(350), row_group_size=50)
    complete = read_all(_config(path))
    assert [file.path for file in complete] == [f"{n}.py" for n in range(350)]
    assert [file.location for file in complete] == [f"x.parquet#{n}" for n in range(350)]
    monkeypatch.setattr("data_prep.sources.units.UNIT_BYTES", 100)
    units = plan_units(_config(path))
    assert len(units) == 7
    assert len({unit.signature for unit in units}) == 7
    assert read_all(_config(path)) == complete


def test_a_large_row_group_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _table(tmp_path / "x.parquet", _many(300), row_group_size=300)
    complete = read_all(_config(path))
    monkeypatch.setattr(parquet_module, "PACKED_BYTES_PER_PART", 1000)
    monkeypatch.setattr(parquet_module, "BATCH_BYTES", 500)
    units = plan_units(_config(path))
    assert len(units) > 2
    parts = [list(read_unit(unit, ReadLimits())) for unit in units]
    assert all(parts)
    assert (
        sorted((f for part in parts for f in part), key=lambda f: int(f.location.split("#")[1])) == complete
    )


def test_only_needed_columns_are_read(tmp_path: Path) -> None:
    path = _table(tmp_path / "x.parquet", _many(5) | {"junk": ["j" * 1000] * 5})
    (unit,) = plan_units(_config(path))
    assert isinstance(unit.reader, ParquetPart)
    assert unit.reader.columns == ("content", "path", "repository")
    assert unit.num_bytes < 1000


def test_wrong_types_and_texts_are_rows(tmp_path: Path) -> None:
    path = _table(tmp_path / "numbers.parquet", {"content": [1, 2]})
    assert [rule_of(file) for file in read_all(_config(path))] == ["broken_record"] * 2
    bad = pa.array([b"good", b"\xff\xfe", None, b"x" * 200], pa.binary()).view(pa.string())
    _table(path, {"content": bad, "path": ["a", "b", "c", "d"]})
    files = read_all(_config(path), ReadLimits(max_file_bytes=100))
    assert [rule_of(file) for file in files] == [None, "decodable", "no_content", "file_size"]
    assert files[3].path == "d"


def test_truncated_and_damaged_files_are_rows_or_an_error_that_names_the_source(tmp_path: Path) -> None:
    path = _table(tmp_path / "x.parquet", _many(100), row_group_size=50)
    data = path.read_bytes()
    (tmp_path / "cut.parquet").write_bytes(data[: len(data) // 2])
    (tmp_path / "text.parquet").write_text("no Parquet")
    for name in ("cut.parquet", "text.parquet"):
        with pytest.raises(
            UserError, match=f"source parquet: none of its Parquet files can be read .{name}: "
        ):
            plan_units(_config(tmp_path / name))
    files = read_all(_config(tmp_path / "*.parquet"))
    assert sorted(file.location for file in files if rule_of(file) == "truncated") == [
        "cut.parquet#end",
        "text.parquet#end",
    ]
    assert sum(rule_of(file) is None for file in files) == 100


def test_a_damaged_row_group_does_not_affect_others(tmp_path: Path) -> None:
    path = _table(tmp_path / "x.parquet", _many(100), row_group_size=50)
    data = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(1).column(0)
    offset = start.dictionary_page_offset or start.data_page_offset
    data[offset : offset + 40] = b"\xff" * 40
    path.write_bytes(data)
    files = read_all(_config(path))
    assert [file.path for file in files[:50]] == [f"{n}.py" for n in range(50)]
    assert [rule_of(file) for file in files[50:]] == ["truncated"]
    assert files[50].rejection is not None
    assert files[50].rejection.value == 50


def test_nested_columns(tmp_path: Path) -> None:
    rows = [{"file": {"text": "x\n", "junk": "j"}, "repo": {"name": "o/r"}}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    columns = ColumnsConfig(content="file.text", repository="repo.name")
    (file,) = read_all(_config(tmp_path / "x.parquet", columns=columns))
    assert (file.repository, file.data) == ("o/r", b"x\n")


def test_every_named_column_must_exist(tmp_path: Path) -> None:
    pq.write_table(pa.table({"content": ["x = 1\n"], "path": ["a.py"]}), tmp_path / "a.parquet")
    columns = ColumnsConfig(content="content", path="pathh", stars="n")
    with pytest.raises(UserError, match="no column n and pathh among content, path"):
        plan_units(ParquetConfig(urls=(str(tmp_path / "a.parquet"),), columns=columns))


def test_the_error_for_a_missing_code_column_says_how_to_name_it(tmp_path: Path) -> None:
    pq.write_table(pa.table({"code": ["x = 1\n"], "path": ["a.py"]}), tmp_path / "a.parquet")
    with pytest.raises(
        UserError, match=r"no column content among code, path: .*`columns: \{content: code\}`"
    ):
        plan_units(_config(tmp_path / "a.parquet"))
