"""Readers of task files."""

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.errors import UserError
from cluster.storage import sha256_file
from finetune.formats import files
from finetune.formats.files import fingerprints, read_lines, read_parallel
from finetune.formats.records import read_records, read_text_pairs

RECORDS = [{"nl": "add one", "code": "x + 1", "more": 3}, {"nl": "naïve", "code": ["f", "(", ")"], "more": 4}]


def _write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def test_only_line_feeds_end_lines_and_spaces_at_ends_go(tmp_path: Path) -> None:
    path = _write(tmp_path / "a", "int a\x0c ; \n\u2028 b\x85c\r\n last")
    assert read_lines(path) == ["int a\x0c ;", "b\x85c", "last"]
    assert read_lines(_write(path, "one \ntwo\n")) == ["one", "two"]


def test_misaligned_files_are_refused_with_both_counts(tmp_path: Path) -> None:
    left, right = _write(tmp_path / "l.java", "a\nb\nc\n"), _write(tmp_path / "r.cs", "x\ny\n")
    with pytest.raises(UserError, match=r"l.java has 3 lines but .*r.cs has 2"):
        read_parallel(left, right)
    assert read_parallel(left, left) == [("a", "a"), ("b", "b"), ("c", "c")]


@pytest.mark.parametrize("data", [b"", b"\n", b" \n\t\n"])
def test_empty_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = _write(tmp_path / "a", data)
    with pytest.raises(UserError, match="is empty"):
        read_lines(path)
    with pytest.raises(UserError, match="is empty"):
        read_records(path, ["nl"])


def test_other_encoding_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"not UTF-8 \(line 2\)"):
        read_lines(_write(tmp_path / "a", b"fine\nna\xefve\n"))
    with pytest.raises(UserError, match="does not exist"):
        read_lines(tmp_path / "none")
    with pytest.raises(UserError, match="cannot be read"):
        read_lines(tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        fingerprints([tmp_path / "none"])


@pytest.mark.parametrize(
    "column",
    [
        pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers()),
        pa.array([2**40], type=pa.timestamp("s")),
        pa.array([0], type=pa.timestamp("s", tz="Nowhere/City")),
    ],
)
def test_a_parquet_value_that_cannot_be_read_is_reported(tmp_path: Path, column: pa.Array) -> None:
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet has a value that cannot be read"):
        read_records(tmp_path / "a.parquet", ["text"])


def _formats(folder: Path) -> list[Path]:
    rows = [{**record, "code": record["code"] if isinstance(record["code"], list) else [record["code"]]} for
            record in RECORDS]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), folder / "c.parquet")
    return [
        _write(folder / "a.jsonl", "\n".join(json.dumps(record) for record in RECORDS) + "\n\n"),
        _write(folder / "b.json", "\ufeff" + json.dumps(RECORDS, indent=1)),
        folder / "c.parquet",
    ]


def test_the_formats_give_the_same_records(tmp_path: Path) -> None:
    for path in _formats(tmp_path):
        assert read_text_pairs(path, "nl", "code") == [("add one", "x + 1"), ("naïve", "f ( )")]
        assert [record["more"] for record in read_records(path, ["more"])] == [3, 4]
        assert [list(record) for record in read_records(path, ["more"], keeps_others=True)] == [
            list(RECORDS[0])
        ] * 2
        with pytest.raises(UserError, match="has no (field|column) 'docstring'"):
            read_records(path, ["nl", "docstring"])
        with pytest.raises(UserError, match="record 1: field 'more' must be a text"):
            read_text_pairs(path, "nl", "more")


_PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


@pytest.mark.parametrize("ending", _PACK)
def test_packed_files_are_read_as_sources_are(tmp_path: Path, ending: str) -> None:
    pack = _PACK[ending]
    for plain in _formats(tmp_path):
        packed = _write(tmp_path / f"{plain.name}{ending}", pack(plain.read_bytes()))
        assert read_records(packed, ["nl", "more"]) == read_records(plain, ["nl", "more"])
    lines = _write(tmp_path / f"lines{ending}", pack(b"a\n\nb\n"))
    assert read_lines(lines) == ["a", "", "b"]
    assert fingerprints([lines]) == {str(lines): sha256_file(lines)}
    for damaged in (lines.read_bytes()[:-3], b"not packed at all"):
        with pytest.raises(UserError, match=r"task file .* cannot be unpacked \(.*\): pack it again"):
            read_lines(_write(lines, damaged))


@pytest.mark.parametrize("ending", _PACK)
def test_a_file_of_ones_own_may_pack_as_well_as_it_does(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = b"the same line again and again\n"
    packed = _write(tmp_path / f"lines{ending}", _PACK[ending](line * (20_000_000 // len(line))))
    assert packed.stat().st_size * 200 < 20_000_000
    assert len(read_lines(packed)) == 20_000_000 // len(line)
    monkeypatch.setattr(files, "MAX_UNPACKED_BYTES", 1 << 20)
    with pytest.raises(
        UserError, match=r"task file .* cannot be unpacked \(.*\): unpack it, and give that file"
    ):
        read_lines(packed)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('{"nl": "a"}\nint x = 3;\n', "line 2 is not JSON"),
        ('{"nl": "a"}\n[1]\n', "line 2 is a JSON list"),
        ("[1, 2", "is not JSON"),
        ("[1]", "item 1 is a JSON int"),
        ("[]", "is empty"),
        ('{"nl": "\\ud800"}', "half of a surrogate"),
        ('{"nl": 3}', "must be a text"),
        ("[" * 100_000, "is not JSON"),
        ("PAR1 and no more", "is not a Parquet file"),
    ],
)
def test_other_formats_are_refused_in_one_line(tmp_path: Path, data: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        read_text_pairs(_write(tmp_path / "a", data), "nl", "nl")
    assert "\n" not in str(caught.value)


def test_fingerprints_are_those_of_the_bytes(tmp_path: Path) -> None:
    path = _write(tmp_path / "a", "x")
    assert fingerprints([path]) == {str(path): sha256_file(path)}
    before = fingerprints([path])
    _write(path, "y")
    assert fingerprints([path]) != before


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    beginning=st.sampled_from([b"", b"PAR1", b"[", b'{"nl": ', b'[{"nl": "a"}, ', b"\xef\xbb\xbf"]),
    data=st.one_of(st.binary(max_size=200), st.text(max_size=100).map(str.encode)),
)
def test_any_bytes_give_texts_or_one_clear_line(tmp_path: Path, beginning: bytes, data: bytes) -> None:
    path = _write(tmp_path / "a", beginning + data)
    for read in (read_lines, lambda path: read_text_pairs(path, "nl", "nl")):
        reported = ""
        try:
            read(path)
        except UserError as error:
            reported = str(error)
        assert "\n" not in reported
