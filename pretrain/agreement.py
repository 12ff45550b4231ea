"""Results or UserErrors of the first worker that all of them get, and what it gives to and takes from each of them."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import torch.distributed as dist

from cluster.errors import UserError

T = TypeVar("T")
_TELL_EVERY_S = 0.1
"""The shortest time between two messages: parts may be small, and each message is a collective."""


def agreed(look: Callable[[], T]) -> T:
    """Call `look` in the first worker and return its result in all of them; collective.

    Raises UserError in every worker when `look` does.
    """
    found: list[T | UserError | None] = [None]
    if dist.get_rank() == 0:
        try:
            found = [look()]
        except UserError as error:
            found = [error]
    dist.broadcast_object_list(found, src=0)
    if isinstance(found[0], UserError):
        raise UserError(str(found[0]))
    return cast(T, found[0])


def scattered(parts: Sequence[T] | None) -> T:
    """Return this worker's of the first worker's `parts`, one per worker; the others give None. Collective."""
    received: list[T | None] = [None]
    dist.scatter_object_list(received, None if parts is None else list(parts), src=0)
    return cast(T, received[0])


def gathered(own: T) -> list[T]:
    """Return what every worker gives as `own`, by rank, in the first one, and nothing in the others. Collective."""
    is_first = dist.get_rank() == 0
    received: list[T | None] | None = [None] * dist.get_world_size() if is_first else None
    dist.gather_object(own, received, dst=0)
    return cast(list[T], received or [])


def agreed_in_parts(look: Callable[[Callable[[], None]], T], tick: Callable[[], None]) -> T:
    """Do as `agreed` for a function that takes long: `look` gets a function to call after each part of its work.

    `tick` is then called in all workers, so that no watchdog takes the wait for a hang and no collective takes longer
    than a part.
    """
    if dist.get_rank() > 0:
        while _broadcast_is_working(False):
            tick()
    return agreed(lambda: _look_in_parts(look, tick))


def _look_in_parts(look: Callable[[Callable[[], None]], T], tick: Callable[[], None]) -> T:
    """Call `look` in the first worker."""
    told_s = time.monotonic()

    def part_done() -> None:
        nonlocal told_s
        if time.monotonic() - told_s >= _TELL_EVERY_S:
            told_s = time.monotonic()
            tick()
            _broadcast_is_working(True)

    try:
        return look(part_done)
    finally:
        _broadcast_is_working(False)


def _broadcast_is_working(own: bool) -> bool:
    """Return in all workers what the first one gives as `own`: whether it is still at work. Collective."""
    said = [own]
    dist.broadcast_object_list(said, src=0)
    return said[0]
