"""Measure a checkpoint's cost for the step loop, and how fast it is written, found and read.

30 million parameters, two processes. Steps without writing, the start of a checkpoint and steps during its writing in
turn (A B C A B C ...); medians. `python -m benchmarks.checkpoint_speed [--folder DIR]` writes and removes some GB
there.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from pretrain.config import PretrainConfig

WORLD_SIZE = 2
VOCAB_SIZE = 8192
STEPS_OF_A_KIND = 4
CONFIG = PretrainConfig.model_validate(
    {
        "model": {"num_layers": 8, "model_dim": 512, "num_heads": 8, "head_dim": 64, "ffn_dim": 2048,
                  "memory_tokens": 64},
        "num_steps": 1000, "lanes": 8, "micro_batch_lanes": 4, "segment_tokens": 64,
        "num_workers": WORLD_SIZE, "checkpoint": {"keep": 1, "keep_best": False},
    }
)  # fmt: skip


@dataclass
class Times:
    """Times in seconds, one entry per step or checkpoint."""

    quiet_steps_s: list[float] = field(default_factory=list)
    busy_steps_s: list[float] = field(default_factory=list)
    copies_s: list[float] = field(default_factory=list)
    stalls_s: list[float] = field(default_factory=list)
    writes_s: list[float] = field(default_factory=list)
    size_bytes: int = 0


def work(folder: Path, num_rounds: int) -> None:
    """Run one rank: train and write checkpoints; rank 0 prints its measurements."""
    import torch
    import torch.distributed as dist

    from cluster.process_group import configure_environment, join_process_group
    from pretrain.checkpoint.compatibility import RunIdentity
    from pretrain.checkpoint.snapshot import Snapshot, StaticFiles
    from pretrain.checkpoint.writer import CheckpointWriter
    from pretrain.engine.training_engine import TrainingEngine
    from pretrain.journal.events import CheckpointWritten, Event
    from pretrain.model.transformer import TwoStreamTransformer
    from pretrain.orders.sampling import OrderMixture
    from pretrain.orders.words import WordPieces
    from pretrain.weights import ModelDescription

    configure_environment("gloo")
    join_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = TwoStreamTransformer(CONFIG.model, VOCAB_SIZE)
    engine = TrainingEngine(model, CONFIG, WORLD_SIZE)
    first_V, last_V = (torch.rand(2, VOCAB_SIZE) < 0.7).unbind()
    words = WordPieces(first_V, last_V)
    mixture = OrderMixture(CONFIG.objective, CONFIG.segment_tokens, words, torch.device("cpu"))
    lanes = range(rank * CONFIG.micro_batch_lanes, (rank + 1) * CONFIG.micro_batch_lanes)
    memory = model.empty_memory(len(lanes))
    times, step = Times(), 0

    def note(text: str, event: Event, level: str) -> None:
        assert isinstance(event, CheckpointWritten), text
        times.writes_s.append(event.write_s)
        times.size_bytes = event.bytes

    def train(durations_s: list[float]) -> None:
        nonlocal memory, step
        for _ in range(STEPS_OF_A_KIND):
            started_s = time.perf_counter()
            tokens_BL = torch.randint(VOCAB_SIZE, (len(lanes), CONFIG.segment_tokens))
            orders = mixture.orders(tokens_BL, 0, step, lanes)
            content, targets = orders.layouts(torch.zeros_like(tokens_BL), None, mixture.extent)
            output = engine.forward(tokens_BL, content, targets, memory)
            engine.accumulate(output.logits_BPV.float().logsumexp(-1).mean(), rank)
            engine.update(1e-4)
            memory, step = output.memory, step + 1
            durations_s.append(time.perf_counter() - started_s)

    identity = RunIdentity(CONFIG, 0, "", "")
    static = StaticFiles.of_pretraining(identity, ModelDescription.of(model, CONFIG.segment_tokens), b"{}")
    writer = CheckpointWriter(folder, rank, WORLD_SIZE, CONFIG.checkpoint, note)
    train([])
    for _ in range(num_rounds):
        train(times.quiet_steps_s)
        dist.barrier()
        started_s = time.perf_counter()
        snapshot = Snapshot(step, step, engine.pieces(), memory, lanes.start, {})
        copied_s = time.perf_counter()
        writer.begin(snapshot, "benchmark", static if rank == 0 else None, "cadence")
        times.copies_s.append(copied_s - started_s)
        times.stalls_s.append(time.perf_counter() - started_s)
        train(times.busy_steps_s)
        writer.wait()
        dist.barrier()
    if rank == 0:
        print(json.dumps(vars(times)))
    engine.close()


def train_and_save(folder: Path, num_rounds: int) -> Times:
    """Start the ranks and return the measurements of rank 0."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.checkpoint_speed", "--folder", str(folder)]
    ranks = []
    for rank in range(WORLD_SIZE):
        environment = {
            **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD_SIZE),
            "LOCAL_WORLD_SIZE": str(WORLD_SIZE), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        arguments = [*command, "--rounds", str(num_rounds)]
        ranks.append(
            subprocess.Popen(
                arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        )
    printed = [process.communicate()[0] for process in ranks]
    assert [process.returncode for process in ranks] == [0] * WORLD_SIZE, printed
    return Times(**json.loads(printed[0].splitlines()[-1]))


def plain_write_s(folder: Path, size_bytes: int) -> float:
    """Return the seconds of a plain write of `size_bytes` by one process, fsynced and not hashed: the disk's limit."""
    block = os.urandom(1 << 22)
    started_s = time.perf_counter()
    with (folder / "plain").open("wb", buffering=0) as file:
        for _ in range(size_bytes // len(block)):
            file.write(block)
        os.fsync(file.fileno())
    took_s = time.perf_counter() - started_s
    (folder / "plain").unlink()
    return took_s


def find_and_read(folder: Path) -> tuple[float, float]:
    """Return the seconds to find the newest valid checkpoint, every byte hashed, and to assemble all its tensors."""
    from pretrain.checkpoint.reading import CheckpointTensors
    from pretrain.checkpoint.verify import newest_valid
    from pretrain.engine.pieces import MOMENTS

    started_s = time.perf_counter()
    found = newest_valid(folder, print)
    found_s = time.perf_counter()
    assert found is not None
    checkpoint = CheckpointTensors(found)
    for name in checkpoint.names:
        checkpoint.master(name)
        for kind in MOMENTS:
            checkpoint.moment(kind, name)
    checkpoint.memory(range(CONFIG.lanes))
    return found_s - started_s, time.perf_counter() - found_s


def main() -> None:
    """Measure and print, or run as one of the ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        work(arguments.folder, arguments.rounds)
        return
    folder = Path(tempfile.mkdtemp(prefix="checkpoint-speed-", dir=arguments.folder))
    try:
        times = train_and_save(folder, arguments.rounds)
        plain_s = statistics.median(plain_write_s(folder, times.size_bytes) for _ in range(3))
        found_s, read_s = find_and_read(folder)
    finally:
        shutil.rmtree(folder)
    megabytes = times.size_bytes / 1e6
    write_s = statistics.median(times.writes_s)
    print(f"{megabytes:.0f} MB a checkpoint, {WORLD_SIZE} processes, medians of {arguments.rounds} rounds")
    print(f"copy of the state      {1000 * statistics.median(times.copies_s):7.1f} ms")
    print(f"stall of the step loop {1000 * statistics.median(times.stalls_s):7.1f} ms")
    print(f"written in             {write_s:7.2f} s  {megabytes / write_s:6.0f} MB/s, beside training")
    print(f"plain write and fsync  {plain_s:7.2f} s  {megabytes / plain_s:6.0f} MB/s, alone")
    print(f"step, nothing written  {1000 * statistics.median(times.quiet_steps_s):7.1f} ms")
    print(f"step beside a checkpoint   {1000 * statistics.median(times.busy_steps_s):7.1f} ms")
    print(f"found, all hashed      {found_s:7.2f} s  {megabytes / found_s:6.0f} MB/s")
    print(f"read whole             {read_s:7.2f} s  {megabytes / read_s:6.0f} MB/s")


if __name__ == "__main__":
    main()
