"""Parquet files that unpack to far more text than they store, and values that are no text."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.sources.config import ColumnsConfig, ParquetConfig
from data_prep.sources.files import find_files
from data_prep.sources.limits import ReadLimits
from data_prep.sources.parquet_rows import group_batches, row_bytes, row_slices
from tests.unit.data_prep.sources.reading import read_all, rule_of

_MB = 1_000_000


def _repeated(num_rows: int, text: str) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array([0] * num_rows, pa.int32()), pa.array([text]))


def _written(path: Path, columns: dict[str, Any], **options: Any) -> ParquetConfig:
    pq.write_table(pa.table(columns), path, compression="zstd", **options)
    return ParquetConfig(urls=(str(path),))


@contextmanager
def _counted_memory() -> Iterator[Any]:
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)


def test_a_repeated_value_of_a_dictionary_is_a_bomb(tmp_path: Path) -> None:
    config = _written(tmp_path / "x.parquet", {"content": _repeated(1100, "x" * _MB)})
    assert (tmp_path / "x.parquet").stat().st_size < 1000
    with _counted_memory() as pool:
        files = read_all(config)
    assert 0 < pool.max_memory() < 100 * _MB
    assert rule_of(files[-1]) == "bomb"
    assert sum(len(file.data or b"") for file in files) <= 16 << 20


@pytest.mark.parametrize("nested", [False, True])
def test_batches_stay_small_whatever_a_dictionary_repeats(tmp_path: Path, nested: bool) -> None:
    texts = _repeated(1100, "x" * _MB)
    column = pa.StructArray.from_arrays([texts], ["text"]) if nested else texts
    _written(tmp_path / "x.parquet", {"content": column})
    (file,) = find_files([str(tmp_path / "x.parquet")])
    batches = list(group_batches(file, 0, ("content",), 256, _MB))
    assert sum(batch.num_rows for batch in batches) == 1100
    assert max(row_bytes(batch).sum() for batch in batches) < 34 << 20
    assert len(batches) < 40


def test_a_value_with_too_large_a_size_in_its_header_is_never_unpacked(tmp_path: Path) -> None:
    config = _written(tmp_path / "x.parquet", {"content": ["a\n", "x" * 40 * _MB, "b\n"]})
    with _counted_memory() as pool:
        (file,) = read_all(config)
    assert rule_of(file) == "bomb"
    assert pool.max_memory() < 20 * _MB


def test_a_row_that_repeats_a_value_in_a_list_is_a_bomb(tmp_path: Path) -> None:
    files = pa.StructArray.from_arrays([_repeated(3000, "x" * _MB)], ["content"])
    column = pa.ListArray.from_arrays(pa.array([0, 3000], pa.int32()), files)
    columns = ColumnsConfig(files="files")
    config = _written(tmp_path / "x.parquet", {"files": column}).model_copy(update={"columns": columns})
    with _counted_memory() as pool:
        assert [rule_of(file) for file in read_all(config)] == ["bomb"]
    assert 0 < pool.max_memory() < 100 * _MB


def test_millions_of_nulls_are_a_bomb(tmp_path: Path) -> None:
    num = 5_000_000
    config = _written(tmp_path / "x.parquet", {"content": pa.nulls(num, pa.string())}, row_group_size=num)
    assert [rule_of(file) for file in read_all(config)] == ["bomb"]


def test_repeated_files_of_ordinary_size_are_no_bomb(tmp_path: Path) -> None:
    config = _written(tmp_path / "x.parquet", {"content": _repeated(1000, "x = 1\n" * 100)})
    files = read_all(config)
    assert [file.data for file in files] == [b"x = 1\n" * 100] * 1000


def test_of_rows_too_long_for_any_file_only_the_length_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_prep.sources.parquet.MAX_ROW_BYTES", 1 << 10)
    monkeypatch.setattr(ReadLimits, "max_record_bytes", 1 << 10)
    texts = ["a\n", "b" * 2000, "c\n"]
    files = read_all(_written(tmp_path / "x.parquet", {"content": texts, "path": ["a", "b", "c"]}))
    assert [rule_of(file) for file in files] == [None, "file_size", None]
    assert [file.location for file in files] == [f"x.parquet#{n}" for n in range(3)]
    assert 2000 < files[1].num_bytes < 2100


_ODD = {
    "date": pa.array([4_000_000, 1], pa.int32()).cast(pa.date32()),
    "duration": pa.array([2**62, 1]).cast(pa.duration("s")),
    "timestamp": pa.array([123_456_789, 1]).cast(pa.timestamp("ns")),
    "zone": pa.array([1, 1]).cast(pa.timestamp("s", "No/Where")),
    "time": pa.array([1, 1]).cast(pa.time64("ns")),
    "decimal": pa.array([1, 2]).cast(pa.decimal128(22, 2)),
    "half": pa.array([1.0, 2.0]).cast(pa.float16()),
    "bytes": pa.array([b"a", b"b"]),
    "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32())),
    "list": pa.array([["x"], ["y"]]),
    "same names": pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([3, 4])], ["a", "a"]),
}


@pytest.mark.parametrize("kind", list(_ODD))
@pytest.mark.parametrize("column", ["content", "path"])
def test_columns_of_other_types_are_broken_records(tmp_path: Path, kind: str, column: str) -> None:
    texts = {"content": pa.array(["x\n", "y\n"]), "path": pa.array(["a", "b"])}
    files = read_all(_written(tmp_path / "x.parquet", {**texts, column: _ODD[kind]}))
    # What pyarrow cannot read at all costs the row group.
    assert [rule_of(file) for file in files] in (["broken_record"] * 2, ["truncated"], ["unsupported"])


_TEXTS = st.lists(st.none() | st.text(max_size=20), max_size=20)


@given(st.lists(_TEXTS | st.none(), max_size=20))
@settings(max_examples=50, deadline=None)
def test_rows_are_measured_as_their_texts(rows: list[list[str | None] | None]) -> None:
    def slow(row: list[str | None] | None) -> int:
        return 8 + sum(8 + len((text or "").encode()) for text in row or [])

    column = pa.array(rows, pa.list_(pa.string()))
    for array in (
        column,
        column.slice(1) if len(column) else column,
        column.cast(pa.large_list(pa.string())),
    ):
        batch = pa.RecordBatch.from_arrays([array], ["files"])
        assert row_bytes(batch).tolist() == [slow(row) for row in array.to_pylist()]


@given(_TEXTS)
@settings(max_examples=50, deadline=None)
def test_every_arrow_type_of_a_text_is_measured(texts: list[str | None]) -> None:
    plain = pa.array(texts, pa.string())
    lengths = [8 + len((text or "").encode()) for text in texts]
    for array in (
        plain,
        plain.cast(pa.large_string()),
        plain.cast(pa.binary()),
        plain.cast(pa.string_view()),
    ):
        assert row_bytes(pa.RecordBatch.from_arrays([array], ["a"])).tolist() == lengths
    dictionary = pa.RecordBatch.from_arrays([plain.dictionary_encode()], ["a"])
    # A dictionary's value counts for its place and for itself.
    expected = [8 + (0 if text is None else n) for text, n in zip(texts, lengths, strict=True)]
    assert row_bytes(dictionary).tolist() == expected


@given(st.lists(st.integers(0, 6 << 20), max_size=40), st.integers(1 << 20, 5 << 20))
@settings(max_examples=50, deadline=None)
def test_slices_are_small_and_have_every_row_once(sizes: list[int], max_row_bytes: int) -> None:
    runs = list(row_slices(np.array(sizes, np.int64), max_row_bytes))
    assert [n for run in runs for n in range(run.start, run.stop)] == list(range(len(sizes)))
    for run in runs:
        is_one = run.stop - run.start == 1
        assert is_one or (sum(sizes[run]) <= 4 << 20 and max(sizes[run]) <= max_row_bytes)
