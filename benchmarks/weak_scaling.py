"""Measure weak scaling on one machine: `python -m benchmarks.weak_scaling PREP` (a prep folder).

The demo's model, eight lanes per worker, one worker and two, in turn; medians of the steps' tokens per second. The
workers share one machine, so this shows the cost of their communication and their competition for memory, not the
scaling of a cluster.
"""

import argparse
import os
import socket
import statistics
import tempfile
from pathlib import Path

import torch
import torch.multiprocessing as mp

from cluster.journal import read_journal
from cluster.process_group import configure_environment, join_process_group
from pipeline.folder.recipe import load_run_config
from pretrain.config import PretrainConfig
from pretrain.run import Run

_LANES_PER_WORKER = 8
_ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prep", type=Path)
    parser.add_argument("--steps", type=int, default=40, help="of each run")
    arguments = parser.parse_args()
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(_ROUNDS):
        for num_workers, found in rates.items():
            found.append(tokens_per_s(short_run(num_workers, arguments.steps), arguments.prep.absolute()))
    for num_workers, found in rates.items():
        print(
            f"{num_workers} workers: {statistics.median(found):,.0f} tokens/s of {[round(rate) for rate in found]}"
        )
    print(f"efficiency of two: {statistics.median(rates[2]) / 2 / statistics.median(rates[1]):.0%}")


def tokens_per_s(config: PretrainConfig, prep: Path) -> float:
    """Return the median over the steps of one run, without the first five."""
    with tempfile.TemporaryDirectory() as temporary:
        run = Run(config, 0, prep, Path(temporary))
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        mp.spawn(_work, (config.num_workers, port, run), nprocs=config.num_workers)
        steps = [record for record in read_journal(run.journal) if record.kind == "step"]
    return statistics.median(step.metrics["tokens_per_s"] for step in steps[5:])


def short_run(num_workers: int, num_steps: int, **changes: object) -> PretrainConfig:
    """Return the demo's config with eight lanes per worker, without checkpoints and evaluations before the end."""
    values = load_run_config("demo").pretrain.model_dump(mode="json")
    values |= {"num_workers": num_workers, "num_steps": num_steps, "lanes": num_workers * _LANES_PER_WORKER}
    values["schedule"] |= {"warmup_steps": 1}
    values["checkpoint"] |= {"every_steps": 10**6}
    values["validation"] |= {"every_steps": 10**6, "final_tokens": 4096, "by_order": False}
    return PretrainConfig.model_validate(values | changes)


def _work(rank: int, num_workers: int, port: int, run: Run) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(num_workers)}
    os.environ |= {"LOCAL_WORLD_SIZE": str(num_workers), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    configure_environment("gloo")
    torch.set_num_threads(1)
    join_process_group("gloo")
    from pretrain.worker import train

    train(run, torch.device("cpu"))


if __name__ == "__main__":
    main()
