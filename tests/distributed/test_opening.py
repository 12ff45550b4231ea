"""The shards' indexes are read by one worker only, and all workers have the same corpora."""

import json
from pathlib import Path

from data_prep.finished.prepared import open_prepared
from tests.distributed.fork_server import start_ranks


def test_only_the_first_worker_reads_the_indexes(tmp_path: Path, prep_folder: Path) -> None:
    settings = {"folder": str(tmp_path), "prep": str(prep_folder)}
    workers = start_ranks("opening_main", settings, 3, str(tmp_path / "{}.log"))
    for rank, worker in enumerate(workers):
        assert worker.wait(60) == 0, (tmp_path / f"{rank}.log").read_text()
    opened = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    read = [one.pop("read") for one in opened]
    assert opened[0] == opened[1] == opened[2]
    alone = open_prepared(prep_folder)
    assert opened[0]["manifest"] == alone.manifest_sha256
    for split, keys in opened[0]["blocks"].items():
        assert keys == [block.key for block in alone.blocks(split)]
    assert opened[0]["tokens"] == alone.read_block(alone.blocks("train")[0]).tokens.tolist()
    assert opened[0]["weights"] == [1.0, 0.5]
    assert opened[0]["is_own"]
    num_shards = sum(len(shards) for shards in alone.manifest.splits.values())
    assert sum(name.endswith(".index.json") for name in read[0]) == 2 * num_shards, "two corpora"
    for names in read[1:]:
        assert not [name for name in names if name != "tokenizer.json"]
