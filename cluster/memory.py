"""Checks of free memory before large allocations: running out may kill other processes, too."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import UserError

if TYPE_CHECKING:
    import torch

CGROUP_FOLDER = Path("/sys/fs/cgroup")
_GB = 1e9


def free_bytes(device: "torch.device") -> float:
    """Return the free bytes of a GPU's memory, or else of the machine's memory within the container's limit."""
    if device.type == "cuda":
        import torch

        free, _ = torch.cuda.mem_get_info(device)
        return float(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    import psutil

    return min(int(psutil.virtual_memory().available), _free_in_container_bytes())


def _free_in_container_bytes() -> float:
    """Return what the memory limit of control groups (version 2) leaves; infinity if there is no limit."""
    try:
        limit_bytes = int((CGROUP_FOLDER / "memory.max").read_text())
        used_bytes = int((CGROUP_FOLDER / "memory.current").read_text())
        lines = (CGROUP_FOLDER / "memory.stat").read_text().splitlines()
    except (OSError, ValueError):  # no container, no limit ("max"), or another version
        return math.inf
    counts = {name: int(count) for name, _, count in (line.partition(" ") for line in lines)}
    # The page cache counts as used, but is freed when memory is needed.
    return limit_bytes - used_bytes + counts.get("active_file", 0) + counts.get("inactive_file", 0)


def check_memory(needed_bytes: int, device: "torch.device", what: str, remedy: str) -> None:
    """Raise UserError when `what` needs more memory than is free; `remedy` says how to need less."""
    free = free_bytes(device)
    if needed_bytes > free:
        raise UserError(
            f"{what} takes {needed_bytes / _GB:,.1f} GB of memory, of which {free / _GB:,.1f} GB are free: {remedy}"
        )
