"""All workers get the result or the error of the first one."""

import json
from pathlib import Path

from tests.distributed.fork_server import start_ranks


def test_everybody_hears_what_the_first_worker_finds_and_what_it_refuses(tmp_path: Path) -> None:
    workers = start_ranks("agreement_main", {"folder": str(tmp_path)}, 2, str(tmp_path / "{}.log"))
    for rank, worker in enumerate(workers):
        assert worker.wait(60) == 0, (tmp_path / f"{rank}.log").read_text()
    reported = ["0", "None", "found", "rank 0 cannot use it", "goes on", "3", "3", "found nothing", "4"]
    assert [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)] == [reported, reported]
