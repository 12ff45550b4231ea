"""Lanes divided among workers, and what they found put together; without a process group there is one worker."""

from collections.abc import Iterator

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray


def _rank_and_world_size() -> tuple[int, int]:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def lanes_of_rank(num_lanes: int) -> range:
    rank, world_size = _rank_and_world_size()
    return range(num_lanes * rank // world_size, num_lanes * (rank + 1) // world_size)


def passes(num_lanes: int, lanes_per_pass: int) -> Iterator[tuple[range, bool]]:
    """The lanes of this worker, some at a time, and whether they count.

    Every worker makes the same number of passes, the last ones perhaps for nothing: under ZeRO 3 a forward pass
    needs all workers.
    """
    mine, (_, world_size) = lanes_of_rank(num_lanes), _rank_and_world_size()
    most_lanes = -(-num_lanes // world_size)
    for first in range(0, most_lanes, lanes_per_pass):
        lanes = mine[first : first + lanes_per_pass]
        yield (lanes, True) if len(lanes) else (range(1), False)


def union(languages: set[str]) -> tuple[str, ...]:
    """The union over workers, sorted; collective."""
    _, world_size = _rank_and_world_size()
    found = [languages] * world_size
    if world_size > 1:
        dist.all_gather_object(found, languages)
    return tuple(sorted(set().union(*found)))


def added_up(sums: NDArray[np.float64], device: torch.device) -> NDArray[np.float64]:
    """The sums of all workers; collective."""
    if _rank_and_world_size()[1] == 1:
        return sums
    total = torch.from_numpy(sums).to(device)
    dist.all_reduce(total)
    added: NDArray[np.float64] = total.cpu().numpy()
    return added
