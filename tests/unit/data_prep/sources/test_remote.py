"""Sources behind URLs: memory, http with and without ranges, s3, and connections that break."""

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cluster.errors import RetryableError, UserError
from data_prep.sources import jsonl as jsonl_module
from data_prep.sources import remote
from data_prep.sources.config import ArchivesConfig, DirectoryConfig, JsonlConfig, ParquetConfig, SourceConfig
from data_prep.sources.limits import ReadLimits
from data_prep.sources.plan import plan_units
from tests.unit.data_prep.sources.reading import read_all, rule_of, texts
from tests.unit.data_prep.sources.web_server import web_server

_NUM_RECORDS = 400
_RECORDS = [{"content": f"x = {n}\n" * 30, "repository": "r", "path": f"{n}.py"} for n in range(_NUM_RECORDS)]
_TEXTS = {("r", str(record["path"])): str(record["content"]).encode() for record in _RECORDS}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "FIRST_PAUSE_S", 0.001)


@pytest.fixture(scope="module")
def containers() -> dict[str, bytes]:
    """Return the same files in every kind of container."""
    lines = "".join(json.dumps(record) + "\n" for record in _RECORDS).encode()
    packed, tar, parquet = io.BytesIO(), io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for (_, name), data in _TEXTS.items():
            archive.writestr(name, data)
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for (_, name), data in _TEXTS.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    pq.write_table(pa.Table.from_pylist(_RECORDS), parquet, row_group_size=100)
    return {
        "r.jsonl": lines,
        "r.jsonl.gz": gzip.compress(lines),
        "r.zip": packed.getvalue(),
        "r.tar": tar.getvalue(),
        "r.tar.gz": gzip.compress(tar.getvalue()),
        "r.parquet": parquet.getvalue(),
    }


def _config(url: str) -> SourceConfig:
    if ".jsonl" in url:
        return JsonlConfig(urls=(url,))
    return ParquetConfig(urls=(url,)) if url.endswith(".parquet") else ArchivesConfig(urls=(url,))


_NAMES = ("r.jsonl", "r.jsonl.gz", "r.zip", "r.tar", "r.tar.gz", "r.parquet")


@pytest.fixture
def memory(containers: dict[str, bytes]) -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    for name, data in containers.items():
        system.pipe_file(f"/corpus/{name}", data)
    yield system
    system.rm("/corpus", recursive=True)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("name", _NAMES)
def test_memory(name: str) -> None:
    assert texts(read_all(_config(f"memory://corpus/{name}"))) == _TEXTS
    assert texts(read_all(_config(f"memory://corpus/*{name[1:]}"))) == _TEXTS


def test_a_remote_folder_of_trees(memory: Any) -> None:
    for name in ("a/x.py", "a/sub/y.py", "b/z.py", "b/.git/HEAD", "top.py"):
        memory.pipe_file(f"/corpus/trees/{name}", name.encode())
    files = read_all(DirectoryConfig(path="memory://corpus/trees", suffixes=(".py",)))
    assert [(file.repository, file.path, file.data) for file in files] == [
        ("a", "sub/y.py", b"a/sub/y.py"),
        ("a", "x.py", b"a/x.py"),
        ("b", "z.py", b"b/z.py"),
        ("trees", "top.py", b"top.py"),
    ]
    before = plan_units(DirectoryConfig(path="memory://corpus/trees"))
    memory.pipe_file("/corpus/trees/a/x.py", b"changed")
    assert plan_units(DirectoryConfig(path="memory://corpus/trees"))[0].signature != before[0].signature


@pytest.mark.parametrize("serves_ranges", [True, False])
@pytest.mark.parametrize("name", _NAMES)
def test_http(
    containers: dict[str, bytes], name: str, serves_ranges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl_module, "UNIT_BYTES", 20_000)
    with web_server(containers, serves_ranges=serves_ranges) as server:
        config = _config(f"{server.url}/{name}")
        assert texts(read_all(config)) == _TEXTS
        if name == "r.jsonl":
            assert len(plan_units(config)) == (7 if serves_ranges else 1)


@pytest.mark.parametrize("serves_ranges", [True, False])
@pytest.mark.parametrize("name", _NAMES)
def test_broken_connections_and_busy_servers_are_retried(
    containers: dict[str, bytes], name: str, serves_ranges: bool
) -> None:
    with web_server(containers, serves_ranges=serves_ranges) as server:
        config = _config(f"{server.url}/{name}")
        plan_units(config)
        server.num_failures = 4
        assert texts(read_all(config)) == _TEXTS
        assert server.num_failures == 0


def test_a_server_that_stays_broken_is_named(containers: dict[str, bytes]) -> None:
    with web_server(containers) as server:
        config = _config(f"{server.url}/r.jsonl.gz")
        plan_units(config)
        server.num_failures = 1000
        with pytest.raises(RetryableError, match=rf"{server.url}/r\.jsonl\.gz cannot be read after 6 tries"):
            read_all(config)


def test_missing_remote_files_are_named(containers: dict[str, bytes], memory: Any) -> None:
    with web_server(containers) as server, pytest.raises(UserError, match=r"none\.jsonl cannot be read"):
        plan_units(_config(f"{server.url}/none.jsonl"))
    for url in ("memory://corpus/none.jsonl", "memory://corpus/*.none.jsonl", "nosuch://x/y.jsonl"):
        with pytest.raises(UserError, match=r"none\.jsonl|nosuch"):
            plan_units(_config(url))


def test_large_files_that_need_ranges_are_refused_without_them(
    containers: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_prep.sources.files.MAX_HELD_BYTES", 1000)
    with web_server(containers, serves_ranges=False) as server:
        for name in ("r.zip", "r.parquet"):
            with pytest.raises(UserError, match="its server sends complete files only"):
                plan_units(_config(f"{server.url}/{name}"))


def test_signature_follows_the_etag(containers: dict[str, bytes]) -> None:
    with web_server(dict(containers)) as server:
        config = _config(f"{server.url}/r.jsonl.gz")
        first = plan_units(config)[0].signature
        assert plan_units(config)[0].signature == first
        server.files["r.jsonl.gz"] += gzip.compress(b"\n")
        fsspec.filesystem("http").invalidate_cache()
        assert plan_units(config)[0].signature != first


@pytest.fixture(scope="module")
def bucket(containers: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An S3 server on this machine with the containers and a folder of trees in a bucket."""
    moto_server = pytest.importorskip("moto.server")
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    patch = pytest.MonkeyPatch()
    patch.setenv("AWS_ACCESS_KEY_ID", "testing")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    # Another test's server may have had another port, and the file system remembers it.
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    system = fsspec.filesystem("s3", skip_instance_cache=True)
    system.mkdir("bucket")
    for name, data in containers.items():
        system.pipe_file(f"bucket/{name}", data)
    for name in ("a/x.py", "b/y.py"):
        system.pipe_file(f"bucket/trees/{name}", name.encode())
    yield "s3://bucket"
    patch.undo()
    server.stop()


def test_s3(bucket: str) -> None:
    for name in _NAMES:
        assert texts(read_all(_config(f"{bucket}/{name}"))) == _TEXTS
    assert texts(read_all(_config(f"{bucket}/*.jsonl"))) == _TEXTS
    assert texts(read_all(DirectoryConfig(path=f"{bucket}/trees"))) == {
        ("a", "x.py"): b"a/x.py",
        ("b", "y.py"): b"b/y.py",
    }
    with pytest.raises(UserError, match=r"s3://bucket/none\.jsonl cannot be read"):
        plan_units(_config(f"{bucket}/none.jsonl"))


def test_a_remote_file_that_vanished_is_a_row(memory: Any) -> None:
    for name in ("x.py", "y.py"):
        memory.pipe_file(f"/corpus/gone/r/{name}", b"x")
    (unit,) = plan_units(DirectoryConfig(path="memory://corpus/gone"))
    memory.rm_file("/corpus/gone/r/x.py")
    files = list(unit.reader.read(ReadLimits()))
    assert [(file.path, rule_of(file)) for file in files] == [("x.py", "readable"), ("y.py", None)]


def test_a_query_is_no_part_of_a_name(containers: dict[str, bytes]) -> None:
    with web_server({f"{name}?token=secret": data for name, data in containers.items()}) as server:
        files = read_all(_config(f"{server.url}/r.jsonl.gz?token=secret"))
    assert texts(files) == _TEXTS
    assert {file.location.partition("#")[0] for file in files} == {"r.jsonl.gz"}


def test_a_web_page_of_links_is_a_folder() -> None:
    page = b'<html><a href="a.py">a</a> <a href="secret.py">s</a></html>'
    with web_server({"code/": page, "code": page, "code/a.py": b"a", "code/secret.py": b"s"}) as server:
        server.forbidden = "/code/secret.py"
        files = read_all(DirectoryConfig(path=f"{server.url}/code/"))
    assert [(file.path, rule_of(file), file.data) for file in files] == [
        ("a.py", None, b"a"),
        ("secret.py", "readable", None),
    ]
