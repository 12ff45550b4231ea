"""Usage of a node's processors, memory, disk, network and GPUs, sampled into one file per node.

The names are MLflow's for several nodes, so that its page of system metrics shows them. The numbers of the samples
continue after a restart.
"""

import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from cluster.errors import UserError
from cluster.journal import Journal, read_journal

SYSTEM_PATTERN = "system-*.jsonl"
_MB = 1e6
_GPU_FIELDS = "utilization.gpu,memory.used,memory.total,power.draw"
_GPU_QUERY = ("nvidia-smi", f"--query-gpu={_GPU_FIELDS}", "--format=csv,noheader,nounits")
_GPU_TIMEOUT_S = 5.0


@contextmanager
def sample_system(folder: Path, interval_s: float = 10.0, node: str | None = None) -> Iterator[None]:
    """Write a sample into `folder`/system-NODE.jsonl every `interval_s` while the block runs.

    For one process of each node. A sample that cannot be taken or written is skipped; nothing is sampled if the file
    is damaged.
    """
    name = re.sub(r"[^\w.-]", "_", node or socket.gethostname())
    path = folder / f"system-{name}.jsonl"
    ended = threading.Event()
    thread = threading.Thread(
        target=_sample_until, args=(ended, path, name, interval_s), name="system-metrics", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def sample(folder: Path) -> dict[str, float]:
    """Return the node's current metrics under MLflow's names; CPU utilisation is that since the last call."""
    memory, disk, network = psutil.virtual_memory(), psutil.disk_usage(str(folder)), psutil.net_io_counters()
    figures = {
        "cpu_utilization_percentage": psutil.cpu_percent(),
        "system_memory_usage_megabytes": memory.used / _MB,
        "system_memory_usage_percentage": memory.percent,
        "disk_usage_percentage": disk.percent,
        "disk_available_megabytes": disk.free / _MB,
        "network_receive_megabytes": network.bytes_recv / _MB,
        "network_transmit_megabytes": network.bytes_sent / _MB,
    }
    return figures | _gpus()


def _sample_until(ended: threading.Event, path: Path, node: str, interval_s: float) -> None:
    with suppress(OSError, UserError):
        number = max((record.step or 0 for record in read_journal(path)), default=0)
        journal = Journal(path)
        psutil.cpu_percent()  # the first call only starts the measurement
        while not ended.wait(interval_s):
            number += 1
            with suppress(OSError, psutil.Error):
                figures = sample(path.parent)
                journal.step(number, {f"system/{node}/{name}": value for name, value in figures.items()})
        journal.close()


def _gpus() -> dict[str, float]:
    """Return the metrics of every NVIDIA GPU of the node; empty if there is none."""
    if shutil.which(_GPU_QUERY[0]) is None:
        return {}
    try:
        answer = subprocess.run(
            _GPU_QUERY, capture_output=True, text=True, timeout=_GPU_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return gpu_figures(answer.stdout)


def gpu_figures(answer: str) -> dict[str, float]:
    """Parse nvidia-smi's lines, one per GPU; values that it lacks, as the power of some cards, are left out."""
    figures: dict[str, float] = {}
    for number, line in enumerate(answer.strip().splitlines()):
        utilisation, used_mib, total_mib, watts = (_number(word) for word in line.split(","))
        found = {
            "utilization_percentage": utilisation,
            "memory_usage_megabytes": None if used_mib is None else used_mib * 2**20 / _MB,
            "memory_usage_percentage": 100 * used_mib / total_mib
            if used_mib is not None and total_mib
            else None,
            "power_usage_watts": watts,
        }
        figures |= {f"gpu_{number}_{name}": value for name, value in found.items() if value is not None}
    return figures


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
