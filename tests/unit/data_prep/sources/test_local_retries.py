"""Temporary and permanent faults of the system."""

import errno
import gzip
import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_prep.sources.config import ArchivesConfig, DirectoryConfig, JsonlConfig, ParquetConfig, SourceConfig
from data_prep.sources.decompress import StreamPart
from data_prep.sources.limits import ReadLimits
from data_prep.sources.local_retries import retry_local
from data_prep.sources.plan import plan_units, read_unit
from tests.unit.data_prep.sources.faults import Faults, break_reads
from tests.unit.data_prep.sources.reading import read_all, rule_of

_FILES = {f"{n}.py": f"x = {n}\n".encode() * 400 for n in range(20)}


def _tar(path: Path, mode: str) -> None:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in _FILES.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in _FILES.items():
            archive.writestr(name, data)


def _jsonl() -> bytes:
    lines = [json.dumps({"path": name, "content": data.decode()}) for name, data in _FILES.items()]
    return "\n".join(lines).encode()


def _folder(path: Path) -> SourceConfig:
    path.mkdir()
    for name, data in _FILES.items():
        (path / name).write_bytes(data)
    return DirectoryConfig(path=str(path), repository="r")


def _made(kind: str, folder: Path) -> SourceConfig:
    path = folder / f"x.{kind}"
    if kind == "py":
        return _folder(folder / "trees")
    if kind == "parquet":
        rows = {"path": list(_FILES), "content": [data.decode() for data in _FILES.values()]}
        pq.write_table(pa.table(rows), path, compression="none", row_group_size=5)
        return ParquetConfig(urls=(str(path),))
    if kind.startswith("jsonl"):
        path.write_bytes(gzip.compress(_jsonl()) if kind == "jsonl.gz" else _jsonl())
        return JsonlConfig(urls=(str(path),))
    if kind == "zip":
        _zip(path)
    else:
        _tar(path, "w:gz" if kind == "tar.gz" else "w")
    return ArchivesConfig(urls=(str(path),))


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENOMEM, errno.ETIMEDOUT])
@pytest.mark.parametrize("kind", ["py", "tar", "tar.gz", "zip", "jsonl", "jsonl.gz", "parquet"])
def test_a_temporary_fault_changes_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, number: int
) -> None:
    config = _made(kind, tmp_path)
    expected = read_all(config)
    units = plan_units(config)
    faults = Faults(f".{kind}", num_times=2, number=number)
    pauses_s = break_reads(monkeypatch, faults)
    assert [file for unit in units for file in read_unit(unit, ReadLimits())] == expected
    assert faults.num_seen >= 2
    assert len(pauses_s) == 2
    assert sum(rule_of(file) is None for file in expected) == len(_FILES)


def test_too_many_open_files_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = _made("py", tmp_path)
    expected = read_all(config)
    units = plan_units(config)
    break_reads(monkeypatch, Faults("none"))
    failures = iter([errno.EMFILE, errno.ENFILE])
    plain = os.open

    def opened(*arguments: Any, **named: Any) -> int:
        number = next(failures, 0)
        if number:
            raise OSError(number, os.strerror(number))
        return plain(*arguments, **named)

    monkeypatch.setattr(os, "open", opened)
    assert [file for unit in units for file in read_unit(unit, ReadLimits())] == expected


def test_a_file_that_stays_unreadable_is_a_row_after_about_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = _made("py", tmp_path)
    pauses_s = break_reads(monkeypatch, Faults("7.py"))
    files = read_all(config)
    failed = [file for file in files if rule_of(file) is not None]
    assert [(file.path, rule_of(file)) for file in failed] == [("17.py", "readable"), ("7.py", "readable")]
    assert failed[0].rejection is not None
    assert failed[0].rejection.value == errno.EIO
    assert sum(pauses_s) == pytest.approx(2.0)


def test_permanent_errors_are_not_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses_s = break_reads(monkeypatch, Faults("none"))
    with pytest.raises(PermissionError):
        retry_local(_raising(PermissionError(errno.EACCES, "no")))
    assert pauses_s == []


def test_retries_on_a_dead_disk_end(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses_s = break_reads(monkeypatch, Faults("none"))
    for _ in range(1000):
        with pytest.raises(OSError, match="dead"):
            retry_local(_raising(OSError(errno.EIO, "dead")))
    assert 119 < sum(pauses_s) < 122


def _raising(error: OSError) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call


def test_a_damaged_place_of_a_plain_tar_affects_one_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_prep.sources.archives.UNIT_BYTES", 20_000)
    monkeypatch.setattr("data_prep.sources.archives.TAR_CHUNK_BYTES", 8192)
    config = _made("tar", tmp_path)
    complete = read_all(config)
    assert len(plan_units(config)) > 1
    _, hit, *_ = sorted(int(file.location.rpartition("@")[2]) for file in complete)
    break_reads(monkeypatch, Faults(".tar", hit + 600, hit + 700))
    files = read_all(config)
    assert len(files) == len(complete)
    assert [file.location for file in files if rule_of(file) == "readable"] == [f"x.tar!1.py@{hit}"]
    assert [file for file in complete if "!1.py" not in file.location] == [
        file for file in files if rule_of(file) is None
    ]


@pytest.mark.parametrize(
    ("kind", "places"),
    [
        ("tar", ["x.tar!", "x.tar!part 1", "x.tar!part 2"]),
        ("tar.gz", ["x.tar.gz!", "x.tar.gz!part 1", "x.tar.gz!part 2"]),
        ("jsonl.gz", ["x.jsonl.gz#end", "x.jsonl.gz#end of part 1", "x.jsonl.gz#end of part 2"]),
        ("parquet", ["x.parquet#0-", "x.parquet#0- of part 1", "x.parquet#0- of part 2"]),
    ],
)
def test_each_part_reports_what_it_could_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, places: list[str]
) -> None:
    def three(_: object) -> list[StreamPart]:
        return [StreamPart(number, 3, 4096) for number in range(3)]

    for name in ("archives._tar_parts", "archives.stream_parts", "jsonl.stream_parts"):
        monkeypatch.setattr(f"data_prep.sources.{name}", three)
    monkeypatch.setattr("data_prep.sources.parquet.PACKED_BYTES_PER_PART", 25_000)
    config = _made(kind, tmp_path)
    if kind == "parquet":
        rows = {"path": list(_FILES), "content": [data.decode() for data in _FILES.values()]}
        pq.write_table(pa.table(rows), tmp_path / "x.parquet", compression="none")
    units = plan_units(config)
    assert len(units) == 3
    break_reads(monkeypatch, Faults(f".{kind}"))
    rows_of_parts = [list(read_unit(unit, ReadLimits())) for unit in units]
    assert [file.location for files in rows_of_parts for file in files] == places
    assert {rule_of(file) for files in rows_of_parts for file in files} == {"readable"}


def test_ranges_of_jsonl_report_where_they_could_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_prep.sources.jsonl.UNIT_BYTES", 20_000)
    monkeypatch.setattr("data_prep.sources.decompress.PIECE_BYTES", 1000)
    config = _made("jsonl", tmp_path)
    complete = read_all(config)
    starts = [int(file.location.partition("#")[2]) for file in complete]
    (hit,) = [start for start in starts if start < 15_000 <= start + 3600]
    break_reads(monkeypatch, Faults(".jsonl", 15_000, 15_001))
    files = read_all(config)
    assert [file.location for file in files if rule_of(file) == "readable"] == [f"x.jsonl#{hit}-"]
    assert [file for file in files if rule_of(file) is None] == [
        file for file, start in zip(complete, starts, strict=True) if start < hit or start >= 20_000
    ]


def test_a_jsonl_file_that_cannot_be_opened_is_a_row_per_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_prep.sources.jsonl.UNIT_BYTES", 40_000)
    units = plan_units(_made("jsonl", tmp_path))
    (tmp_path / "x.jsonl").unlink()
    files = [file for unit in units for file in read_unit(unit, ReadLimits())]
    assert [file.location for file in files] == [f"x.jsonl#{n * 40_000}-" for n in range(len(units))]
    assert {rule_of(file) for file in files} == {"readable"}
