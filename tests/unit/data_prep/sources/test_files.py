"""The files at locations, and sources without files."""

import gzip
import json
import os
import socket
import zipfile
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import UserError
from data_prep.sources.config import ArchivesConfig, JsonlConfig, ParquetConfig, SourceConfig
from data_prep.sources.files import find_files
from data_prep.sources.plan import plan_units
from tests.unit.data_prep.sources.reading import read_all, rule_of

_LINE = json.dumps({"content": "x = 1\n"})


def _odd_matches(folder: Path, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(folder / f"fifo{ending}")
    (folder / f"nowhere{ending}").symlink_to("/does/not/exist")
    (folder / f"loop{ending}").symlink_to(f"loop{ending}")
    (folder / f"folder{ending}").mkdir()
    (folder / f"linked{ending}").symlink_to(f"good{ending}")
    monkeypatch.chdir(folder)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(f"socket{ending}")


def _made(folder: Path, ending: str) -> SourceConfig:
    good, pattern = folder / f"good{ending}", f"{folder}/*{ending}"
    if ending == ".parquet":
        pq.write_table(pa.table({"content": ["x = 1\n"]}), good)
        return ParquetConfig(urls=(pattern,))
    if ending == ".zip":
        with zipfile.ZipFile(good, "w") as archive:
            archive.writestr("a.py", "x = 1\n")
        return ArchivesConfig(urls=(pattern,))
    good.write_bytes(gzip.compress(_LINE.encode()) if ending.endswith(".gz") else _LINE.encode())
    return JsonlConfig(urls=(pattern,))


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".parquet", ".zip"])
def test_every_match_of_a_pattern_is_read_or_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    config = _made(tmp_path, ending)
    _odd_matches(tmp_path, ending, monkeypatch)
    files = read_all(config)
    found = {
        file.location.split(".")[0]: (rule_of(file), file.rejection and file.rejection.detail)
        for file in files
    }
    assert found == {
        "good": (None, None),
        "linked": (None, None),
        "fifo": ("not_regular", "FIFO"),
        "socket": ("not_regular", "socket"),
        "folder": ("not_regular", "folder"),
        "nowhere": ("link", "/does/not/exist"),
        "loop": ("link", f"loop{ending}"),
    }


def test_signatures_depend_on_the_kind_of_rejected_matches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _made(tmp_path, ".jsonl")
    _odd_matches(tmp_path, ".jsonl", monkeypatch)
    first = [unit.signature for unit in plan_units(config)]
    (tmp_path / "nowhere.jsonl").unlink()
    (tmp_path / "nowhere.jsonl").symlink_to("/somewhere/else")
    assert [unit.signature for unit in plan_units(config)] != first


def test_folders_that_a_pattern_passes_through_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x.jsonl").write_text(_LINE)
    assert [file.label for file in find_files([f"{tmp_path}/**"])] == ["x.jsonl"]
    assert [file.label for file in find_files([f"{tmp_path}/**/*.jsonl"])] == ["x.jsonl"]
    system = fsspec.filesystem("memory")
    for name in ("/files/a/x.jsonl", "/files/y.jsonl"):
        system.pipe_file(name, _LINE.encode())
    try:
        assert [file.label for file in find_files(["memory://files/**"])] == ["a/x.jsonl", "y.jsonl"]
        matches = find_files(["memory://files/*"])
        assert [(file.label, file.rejection and file.rejection.detail) for file in matches] == [
            ("a", "folder"),
            ("y.jsonl", None),
        ]
    finally:
        system.rm("/files", recursive=True)


def test_a_pattern_without_a_match_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(UserError, match=r"no such file .1 matches are not files that can be opened"):
        plan_units(JsonlConfig(urls=(f"{tmp_path}/*.jsonl",)))


def test_sources_without_files_are_named(tmp_path: Path) -> None:
    pq.ParquetWriter(tmp_path / "none.parquet", pa.schema([("content", pa.string())])).close()
    pq.write_table(pa.table({"content": pa.array([], pa.string())}), tmp_path / "empty.parquet")
    with pytest.raises(UserError, match="source parquet: its Parquet files have no rows"):
        plan_units(ParquetConfig(urls=(f"{tmp_path}/*.parquet",)))
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(UserError, match="source jsonl: its files are empty"):
        plan_units(JsonlConfig(urls=(f"{tmp_path}/*.jsonl",)))
    zipfile.ZipFile(tmp_path / "empty.zip", "w").close()
    with pytest.raises(UserError, match="source archives: its archives are empty"):
        plan_units(ArchivesConfig(urls=(f"{tmp_path}/*.zip",)))


def test_an_empty_file_beside_others_is_no_error(tmp_path: Path) -> None:
    pq.ParquetWriter(tmp_path / "none.parquet", pa.schema([("content", pa.string())])).close()
    assert [rule_of(file) for file in read_all(_made(tmp_path, ".parquet"))] == [None]
    (tmp_path / "empty.jsonl").touch()
    assert [rule_of(file) for file in read_all(_made(tmp_path, ".jsonl"))] == [None]
