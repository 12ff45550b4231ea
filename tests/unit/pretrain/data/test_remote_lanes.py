"""Lanes of a prep folder behind a URL: the same tokens; connections that break, and what the server lost."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from cluster.errors import UserError
from data_prep.finished.prepared import open_prepared
from data_prep.sources import remote
from pretrain.data import prefetch as feed_module
from pretrain.data.lanes import LaneReader
from pretrain.data.prefetch import LaneFeed
from tests.unit.data_prep.sources.web_server import WebServer, web_server
from tests.unit.pretrain.data.written import write_tokens

LANES, SEGMENT, STEPS = 3, 16, 60


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "FIRST_PAUSE_S", 0.001)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    layout = {"a": (1.0, [[300, 400], [200, 250]]), "b": (1.0, [[100, 90, 80]])}
    return write_tokens(tmp_path_factory.mktemp("remote") / "prep", layout)


@pytest.fixture(scope="module")
def files(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {f"prep/{path.relative_to(folder)}": path.read_bytes() for path in paths}


@pytest.fixture
def server(files: dict[str, bytes]) -> Iterator[WebServer]:
    with web_server(dict(files)) as running:
        yield running


def read(location: str | Path) -> list[np.ndarray]:
    reader = LaneReader(open_prepared(location), "train", LANES, SEGMENT, seed=2)
    feed = LaneFeed(reader, range(LANES), 0)
    tokens = [feed.take(cursor).tokens_BL for cursor in range(STEPS)]
    feed.close()
    return tokens


def test_memory(folder: Path, files: dict[str, bytes]) -> None:
    system = fsspec.filesystem("memory")
    for name, data in files.items():
        system.pipe_file(f"/{name}", data)
    assert np.array_equal(read("memory://prep"), read(folder))
    system.rm("/prep", recursive=True)


def test_http_reads_each_block_alone(folder: Path, server: WebServer) -> None:
    assert np.array_equal(read(f"{server.url}/prep/"), read(folder))
    tars = [request for request in server.requests if ".tar " in request]
    blocks = [entry for entry in open_prepared(folder).blocks("train")]
    wanted = {
        f"GET /prep/shards/{entry.shard}.tar bytes={entry.offset}-{entry.offset + entry.num_bytes - 1}"
        for entry in blocks
    }
    assert set(tars) == wanted


def test_the_block_after_the_one_being_read_is_fetched_ahead(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "LANE_TOKENS", SEGMENT)
    reader = LaneReader(open_prepared(f"{server.url}/prep"), "train", 1, SEGMENT, seed=2)
    read = [place.block for step in range(reader.steps_per_epoch) for place in reader.block_ranges(step, 0)]
    following = next(block for block in read if block != read[0])
    assert read.index(following) > 3, "otherwise it is read at once"
    feed = LaneFeed(reader, range(1), 0)
    feed.take(0)
    wanted = f"shards/{following.shard}.tar bytes={following.offset}-"
    deadline_s = time.monotonic() + 20
    while not any(wanted in request for request in server.requests) and time.monotonic() < deadline_s:
        time.sleep(0.005)
    feed.close()
    assert any(wanted in request for request in server.requests)


def test_s3(folder: Path, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    moto_server = pytest.importorskip("moto.server")
    running = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    # Another test's server may have had another port, and the file system remembers it.
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    system = fsspec.filesystem("s3", skip_instance_cache=True)
    system.mkdir("corpora")
    for name, data in files.items():
        system.pipe_file(f"corpora/{name}", data)
    assert np.array_equal(read("s3://corpora/prep"), read(folder))
    running.stop()


def test_broken_connections_and_busy_servers_are_tried_again(folder: Path, server: WebServer) -> None:
    server.num_failures = 4
    assert np.array_equal(read(f"{server.url}/prep"), read(folder))
    assert server.num_failures == 0


def test_a_server_that_stays_broken_is_named(server: WebServer) -> None:
    reader = LaneReader(open_prepared(f"{server.url}/prep"), "train", LANES, SEGMENT, seed=0)
    server.num_failures = 10_000
    with pytest.raises(UserError, match=r"/prep/shards/train-0000\d\.tar cannot be read after 6 tries"):
        reader.segment(0, 0)


def test_a_block_that_is_damaged_on_the_way_is_fetched_again(
    folder: Path, server: WebServer, files: dict[str, bytes]
) -> None:
    corpus = open_prepared(f"{server.url}/prep")
    entry = corpus.blocks("train")[0]
    name = f"prep/shards/{entry.shard}.tar"
    damaged = bytearray(files[name])
    damaged[entry.members["tokens.npy"].offset + 130] ^= 1
    answers: Any = iter([bytes(damaged)])

    class Stumbling(dict[str, bytes]):
        def get(self, key: str, default: Any = None) -> Any:
            return next(answers, files[name]) if key == name else super().get(key, default)

    server.files = Stumbling(files)
    assert np.array_equal(corpus.read_block(entry).tokens, open_prepared(folder).read_block(entry).tokens)
    server.files = files | {name: bytes(damaged)}
    with pytest.raises(UserError, match=rf"{name} is damaged in block {entry.key} \(tokens.npy\): copy the"):
        corpus.read_block(entry)


def test_what_the_server_has_lost_is_named(server: WebServer) -> None:
    location = f"{server.url}/prep"
    reader = LaneReader(open_prepared(location), "train", LANES, SEGMENT, seed=0)
    block = reader.block_ranges(0, 0)[0].block
    tar = f"prep/shards/{block.shard}.tar"
    server.files[tar] = server.files[tar][: block.offset + 100]
    with pytest.raises(UserError, match=rf"{location}/shards/{block.shard}\.tar is missing or cut short"):
        reader.segment(0, 0)
    del server.files[tar]
    with pytest.raises(UserError, match=rf"{location}/shards/{block.shard}\.tar is missing or cut short"):
        reader.segment(0, 0)
    del server.files[f"prep/shards/{block.shard}.index.json"]
    with pytest.raises(UserError, match=rf"index {location}/shards/{block.shard}\.index\.json is missing"):
        open_prepared(location)
    del server.files["prep/manifest.json"]
    with pytest.raises(UserError, match=rf"{location} has no manifest\.json"):
        open_prepared(location)


def test_a_server_without_ranges_is_refused(files: dict[str, bytes]) -> None:
    with web_server(files, serves_ranges=False) as server:
        reader = LaneReader(open_prepared(f"{server.url}/prep"), "train", LANES, SEGMENT, seed=0)
        with pytest.raises(UserError, match="its server sends complete files only"):
            reader.segment(0, 0)


def test_a_remote_folder_has_no_path(server: WebServer) -> None:
    corpus = open_prepared(f"{server.url}/prep")
    with pytest.raises(UserError, match=rf"{server.url}/prep is not on this machine"):
        _ = corpus.folder
