"""JSONL, plain and compressed, in parts."""

import bz2
import gzip
import io
import json
import lzma
import re
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import UserError
from data_prep.documents import RawFile
from data_prep.sources import jsonl as jsonl_module
from data_prep.sources.columns import column_mappings
from data_prep.sources.config import ColumnsConfig, JsonlConfig
from data_prep.sources.decompress import StreamPart, stream_parts
from data_prep.sources.files import SourceFile
from data_prep.sources.jsonl import JsonlStream, first_line_start, split_lines
from data_prep.sources.limits import ReadLimits
from data_prep.sources.plan import plan_units
from data_prep.sources.records import RecordReader
from data_prep.sources.units import refuse_unreadable
from tests.hostile_corpus import write_hostile_tables
from tests.unit.data_prep.sources.reading import read_all, rule_of, rules

_LINES = st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")), max_size=20)
_COMPRESS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.compress}


def _records(num: int) -> bytes:
    return b"".join(
        json.dumps({"content": f"x = {n}\n" * (n % 7), "repository": f"r{n % 3}", "path": f"{n}.py"}).encode()
        + b"\n"
        for n in range(num)
    )


@settings(max_examples=100, deadline=None)
@given(_LINES, st.booleans(), st.integers(1, 40), st.integers(1, 9), st.integers(1, 15))
def test_byte_ranges_have_every_line_once_in_order(
    lines: list[bytes], ends: bool, range_bytes: int, piece_bytes: int, max_bytes: int
) -> None:
    data = b"\n".join(lines) + b"\n" * ends
    found = []
    for start in range(0, max(1, len(data)), range_bytes):
        end = start + range_bytes
        file = io.BytesIO(data)
        first = first_line_start(file, start, end)
        if first is None:
            continue
        file.seek(first)
        for line in split_lines(iter(lambda: file.read(piece_bytes), b""), first, max_bytes):  # noqa: B023
            if line.offset >= end:
                break
            found.append(line)
    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()
    offset = 0
    for line, complete in zip(found, expected, strict=True):
        assert (line.offset, line.num_bytes) == (offset, len(complete))
        assert line.data == (complete if len(complete) <= max_bytes else None)
        offset += len(complete) + 1


def test_plain_files_are_cut_into_ranges_with_every_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data.jsonl").write_bytes(_records(500))
    config = JsonlConfig(urls=(str(tmp_path / "data.jsonl"),))
    complete = read_all(config)
    assert [file.path for file in complete] == [f"{n}.py" for n in range(500)]
    monkeypatch.setattr(jsonl_module, "UNIT_BYTES", 1000)
    assert len(plan_units(config)) > 20
    assert read_all(config) == complete


@pytest.mark.parametrize("codec", list(_COMPRESS))
def test_parts_of_compressed_files_have_every_record_once(tmp_path: Path, codec: str) -> None:
    data = _records(500)
    path = tmp_path / f"data.jsonl.{codec}"
    path.write_bytes(_COMPRESS[codec](data[:3000]) + _COMPRESS[codec](data[3000:]))
    complete = read_all(JsonlConfig(urls=(str(path),)))
    assert [file.path for file in complete] == [f"{n}.py" for n in range(500)]
    records = RecordReader(column_mappings(None, None), path.name, ())
    file = SourceFile(str(path), path.name, path.stat().st_size, "")
    for num_parts in (2, 3, 7):
        parts = [
            JsonlStream(file, codec, records, StreamPart(k, num_parts, chunk_bytes=512))
            for k in range(num_parts)
        ]
        per_part = [list(part.read(ReadLimits())) for part in parts]
        assert all(per_part)
        union = [item for part in per_part for item in part]
        assert sorted(union, key=_offset) == complete
        assert all(part == sorted(part, key=_offset) for part in per_part)


def _offset(file: RawFile) -> int:
    return int(file.location.rpartition("#")[2])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 16), st.integers(1, 1 << 20), st.integers(0, 1 << 40))
def test_every_offset_has_one_part(num_parts: int, chunk_bytes: int, offset: int) -> None:
    owners = [k for k in range(num_parts) if StreamPart(k, num_parts, chunk_bytes).owns(offset)]
    assert len(owners) == 1


def test_number_of_parts_is_a_function_of_the_size() -> None:
    sizes = (None, 0, 1, 32 << 20, (32 << 20) + 1, 1 << 30, 2 << 30, 1 << 40)
    assert [len(stream_parts(size)) for size in sizes] == [1, 1, 1, 1, 2, 4, 8, 16]


def test_broken_lines_are_rows_and_do_not_affect_others(tmp_path: Path) -> None:
    write_hostile_tables(tmp_path)
    files = read_all(JsonlConfig(urls=(str(tmp_path / "broken.jsonl"),)))
    assert [rule_of(file) for file in files] == [
        None,
        *["broken_record"] * 7,
        "decodable",
        "no_content",
        "file_size",
        None,
    ]
    data = (tmp_path / "broken.jsonl").read_bytes()
    for file in files[1:8]:
        assert file.rejection is not None
        assert file.rejection.value == _offset(file)
        assert data[_offset(file) - 1 :][:1] == b"\n"
    assert [f.rejection.detail for f in files[4:6] if f.rejection] == [
        "column content is a number, not a text",
        "column path is a list, not a text",
    ]


def test_a_truncated_stream_keeps_earlier_records_and_reports_where_it_ends(tmp_path: Path) -> None:
    write_hostile_tables(tmp_path)
    files = read_all(JsonlConfig(urls=(str(tmp_path / "cut.jsonl.gz"),)))
    assert rule_of(files[0]) is None
    assert rule_of(files[-1]) == "truncated"
    assert sum(rule_of(file) == "truncated" for file in files) == 1


@pytest.mark.parametrize("codec", list(_COMPRESS))
def test_a_stream_truncated_anywhere_has_one_truncated_row(tmp_path: Path, codec: str) -> None:
    packed = _COMPRESS[codec](_records(40))
    path = tmp_path / f"x.jsonl.{codec}"
    for num_bytes in {0, 1, 3, 11, len(packed) // 2, len(packed) - 5, len(packed) - 1}:
        path.write_bytes(packed[:num_bytes])
        files = read_all(JsonlConfig(urls=(str(path),)))
        assert [rule_of(file) for file in files].count("truncated") == 1, num_bytes
        assert [file.path for file in files[:-1]] == [f"{n}.py" for n in range(len(files) - 1)]


@pytest.mark.parametrize("codec", list(_COMPRESS))
def test_reading_of_a_bomb_stops_at_the_limit(tmp_path: Path, codec: str) -> None:
    line = b'{"content": "' + b" " * (1 << 20) + b'"}\n'
    path = tmp_path / f"bomb.jsonl.{codec}"
    path.write_bytes(_COMPRESS[codec](line * 64))
    files = read_all(JsonlConfig(urls=(str(path),)), ReadLimits(max_file_bytes=2 << 20))
    assert rule_of(files[-1]) == "bomb"
    assert 0 < len(files) <= 17
    assert {rule_of(file) for file in files[:-1]} <= {None}


def test_a_long_line_is_never_in_memory(tmp_path: Path) -> None:
    limits = ReadLimits(max_file_bytes=100)
    path = tmp_path / "long.jsonl"
    with path.open("wb") as file:
        file.write(b'{"content": "a"}\n')
        file.truncate(100 << 20)  # one sparse line of zeros
        file.seek(0, io.SEEK_END)
        file.write(b'\n{"content": "b"}\n')
    files = read_all(JsonlConfig(urls=(str(path),)), limits)
    assert [(rule_of(file), file.data) for file in files] == [(None, b"a"), ("file_size", None), (None, b"b")]
    assert files[1].num_bytes == (100 << 20) - 17


def test_nested_columns_licences_and_stars(tmp_path: Path) -> None:
    record = {
        "file": {"text": "x = 1\n", "where": "a.py"},
        "repo": {"name": "o/r", "stars": 7.0},
        "licenses": ["MIT", "Apache-2.0"],
        "lang": "Python",
    }
    (tmp_path / "x.jsonl").write_text(json.dumps(record))
    columns = ColumnsConfig(
        content="file.text", path="file.where", repository="repo.name", stars="repo.stars",
        licence="licenses", language="lang",
    )  # fmt: skip
    (file,) = read_all(JsonlConfig(urls=(str(tmp_path / "x.jsonl"),), columns=columns))
    assert file == RawFile("o/r", "a.py", "x.jsonl#0", 6, b"x = 1\n", None, "Python", "Apache-2.0 AND MIT", 7)


def test_records_without_names_are_named_by_their_position(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"content": "a"}\n{"content": "b"}\n')
    config = JsonlConfig(urls=(str(tmp_path / "x.jsonl"),), columns=ColumnsConfig())
    assert [(file.repository, file.path) for file in read_all(config)] == [
        ("x.jsonl", "record 0"),
        ("x.jsonl", "record 17"),
    ]


def _refusal(folder: Path, **columns: str) -> str:
    """Return the error of planning all tables of the folder with these columns."""
    config = JsonlConfig(urls=(str(folder / "*"),), columns=ColumnsConfig.model_validate(columns))
    with pytest.raises(UserError) as caught:
        plan_units(config)
    return str(caught.value)


@pytest.mark.parametrize("codec", [None, *_COMPRESS])
def test_every_named_column_must_exist(tmp_path: Path, codec: str | None) -> None:
    pack = _COMPRESS[codec] if codec else bytes
    (tmp_path / "a.jsonl").write_bytes(_records(5) + b'{"content": "", "licence": "MIT", "stars": 1}')
    (tmp_path / f"b.jsonl{'.' * bool(codec)}{codec or ''}").write_bytes(pack(b"\n[\n7\n" + _records(9)))
    message = _refusal(tmp_path, repository="repository", licence="licence", stars="stars")
    assert message.startswith("source jsonl: b.jsonl")
    assert "no column licence and stars among content, path, repository in its first 9 records" in message
    assert "check `columns`" in message


@pytest.mark.parametrize(
    "columns",
    [
        {"content": "body"},
        {"licence": "repo.licence"},
        {"path": "content.path"},
        {"stars": "repo.name.stars"},
    ],
)
def test_the_content_column_and_nested_ones_must_exist(tmp_path: Path, columns: dict[str, str]) -> None:
    (tmp_path / "a.jsonl").write_text('{"content": "x", "repo": {"name": "o/r"}}')
    assert f"no column {next(iter(columns.values()))} among content, repo in" in _refusal(tmp_path, **columns)


def test_a_column_that_some_records_have_may_be_named(tmp_path: Path) -> None:
    rare = [b'{"content": "a", "licence": null}', b'{"content": "b", "repo": null}']
    (tmp_path / "a.jsonl").write_bytes(_records(900) + b"\n".join(rare))
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "broken.jsonl").write_bytes(b"no JSON\n7\n")
    (tmp_path / "cut.jsonl.gz").write_bytes(b"no gzip")
    columns = ColumnsConfig(licence="licence", repository="repo.name")
    config = JsonlConfig(urls=(str(tmp_path / "*"),), columns=columns)
    assert len(read_all(config)) == 900 + 2 + 2 + 1
    (tmp_path / "a.jsonl").write_bytes(_records(1000) + b"\n".join(rare))
    assert "licence and repo.name" in _refusal(tmp_path, licence="licence", repository="repo.name")


def test_columns_are_looked_for_in_the_beginning_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl_module, "UNIT_BYTES", 1000)
    (tmp_path / "a.jsonl").write_bytes(_records(500) + b'{"content": "", "licence": "MIT"}')
    found = re.search(r"in its first (\d+) records", _refusal(tmp_path, licence="licence"))
    assert found is not None
    assert 10 < int(found[1]) < 30


def test_columns_of_listed_files_may_be_in_the_file_or_the_record(tmp_path: Path) -> None:
    record = {"repo": "o/r", "files": [7, {"content": "x = 1\n"}, {"content": "y = 1\n", "path": "a.py"}]}
    (tmp_path / "a.jsonl").write_text(json.dumps(record))
    columns = {"repository": "repo", "path": "path", "files": "files"}
    config = JsonlConfig(urls=(str(tmp_path / "a.jsonl"),), columns=ColumnsConfig.model_validate(columns))
    assert [file.path for file in read_all(config)] == ["record 0.0", "record 0.1", "a.py"]
    assert "no column license among content, files, path, repo" in _refusal(
        tmp_path, **columns, licence="license"
    )


def test_long_lists_of_columns_are_truncated(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"content": "x"} | {f"k{n:03}": n for n in range(300)}))
    assert "among content, k000, k001, " in (message := _refusal(tmp_path, licence="licence"))
    assert ", ... in its first record" in message
    assert len(message) < 400


def test_columns_of_a_preset_need_not_exist(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(_records(3))
    config = JsonlConfig(urls=(str(tmp_path / "a.jsonl"),), preset="the_stack_v1")
    assert [file.repository for file in read_all(config)] == ["a.jsonl"] * 3


def test_exclusion_applies_to_records(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(_records(6))
    found = rules(read_all(JsonlConfig(urls=(str(tmp_path / "x.jsonl"),), exclude=("r1", "5.py"))))
    assert {path for path, rule in found.items() if rule == "excluded"} == {"1.py", "4.py", "5.py"}


def test_the_error_names_an_unreadable_source() -> None:
    with pytest.raises(
        UserError, match="source web: none of its files could be read .broken_record 2, truncated 1.:"
    ):
        refuse_unreadable("web", {"truncated": 1, "broken_record": 2})
    refuse_unreadable("web", {"truncated": 1, None: 1})
    refuse_unreadable("web", {"truncated": 1, "file_size": 1})
    refuse_unreadable("web", {})


def test_missing_files_are_named(tmp_path: Path) -> None:
    for name in ("none.jsonl", "*.jsonl"):
        with pytest.raises(UserError, match=r"jsonl"):
            plan_units(JsonlConfig(urls=(str(tmp_path / name),)))
    with pytest.raises(UserError, match="is not a file"):
        plan_units(JsonlConfig(urls=(str(tmp_path),)))


def test_licence_files_are_read_whatever_the_size_limits(tmp_path: Path) -> None:
    lines = [
        json.dumps({"content": "x" * 100, "path": name}) for name in ("LICENSE", "a.py", "b/LICENSE.txt")
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    columns = ColumnsConfig(path="path")
    config = JsonlConfig(urls=(str(tmp_path / "x.jsonl"),), columns=columns, exclude=("*.txt",))
    files = read_all(config, ReadLimits(max_file_bytes=10))
    assert [(file.path, rule_of(file), file.data) for file in files] == [
        ("LICENSE", "file_size", b"x" * 100),
        ("a.py", "file_size", None),
        ("b/LICENSE.txt", "excluded", None),
    ]


def test_the_error_for_a_missing_code_column_says_how_to_name_it(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x = 1", "path": "a.py"}\n' * 3)
    (tmp_path / "b.jsonl").write_text("no JSON\n")
    config = JsonlConfig(urls=(str(tmp_path / "*"),))
    with pytest.raises(
        UserError, match=r"no column content among path, text: .*`columns: \{content: text\}`"
    ):
        plan_units(config)
    with pytest.raises(UserError, match=r"no column original_string or whole_func_string among path, text"):
        plan_units(config.model_copy(update={"preset": "codesearchnet"}))
    (tmp_path / "c.jsonl").write_text('{"content": "x = 1"}\n')
    assert len(plan_units(config)) > 0
