"""One rank that opens a run's corpora with the others, in a process that the fork server started."""

import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from cluster.process_group import configure_environment, join_process_group
from data_prep.finished.prepared import LocalFiles
from pretrain.health.stop import stop_requests
from pretrain.health.watchdog import Watchdog
from pretrain.journal.recorder import Recorder
from pretrain.run import Run
from pretrain.run_context import RunContext
from tests.distributed.workers import small_config


def main(given: dict[str, Any]) -> None:
    """Open the corpora; write the names of the files read, the corpora and a block's tokens to RANK.json."""
    configure_environment("gloo")
    join_process_group("gloo")
    read_names: list[str] = []
    read = LocalFiles.read

    def counted(files: LocalFiles, name: str) -> bytes:
        read_names.append(name)
        return read(files, name)

    setattr(LocalFiles, "read", counted)  # noqa: B010  # mypy: assignment to a method
    folder, rank = Path(given["folder"]), dist.get_rank()
    config = small_config(data={"corpora": [{"location": given["prep"], "weight": 0.5}]})
    run = Run(config, seed=3, prep_folder=Path(given["prep"]), folder=folder, accepted=frozenset())
    with (
        Watchdog(folder, rank, dist.get_world_size(), 60.0) as watchdog,
        stop_requests(folder, rank == 0) as stop,
    ):
        context = RunContext.open(run, torch.device("cpu"), Recorder(None), watchdog, stop)
    corpus = context.corpus
    blocks = {split: [block.key for block in corpus.blocks(split)] for split in ("train", "validation")}
    tokens = corpus.read_block(corpus.blocks("train")[0]).tokens.tolist()
    opened = {
        "read": sorted(read_names), "blocks": blocks, "tokens": tokens, "manifest": corpus.manifest_sha256,
        "weights": [part.weight for part in context.corpora], "is_own": context.corpora[0].corpus is corpus,
    }  # fmt: skip
    (folder / f"{rank}.json").write_text(json.dumps(opened))
    dist.destroy_process_group()
