"""What one worker finds out, all know."""

import time
from collections.abc import Callable
from typing import TypeVar, cast

import torch.distributed as dist

from cluster.errors import UserError

T = TypeVar("T")
_TELL_EVERY_S = 0.1
"""Parts may be small, and telling of one is a collective."""


def agreed(look: Callable[[], T]) -> T:
    """What `look` gives the first worker, for all of them; collective. What it cannot use, nobody uses.

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


def agreed_in_parts(look: Callable[[Callable[[], None]], T], tick: Callable[[], None]) -> T:
    """As `agreed`, for what takes the first worker long: `look` gets a function to call after each part of it.

    `tick` is then called in all workers. So nobody takes the waiting for a hang, and no collective takes longer than a
    part does.
    """
    if dist.get_rank() > 0:
        while _first_goes_on(False):
            tick()
    return agreed(lambda: _look_in_parts(look, tick))


def _look_in_parts(look: Callable[[Callable[[], None]], T], tick: Callable[[], None]) -> T:
    """What the first worker does."""
    told_s = time.monotonic()

    def part_done() -> None:
        nonlocal told_s
        if time.monotonic() - told_s >= _TELL_EVERY_S:
            told_s = time.monotonic()
            tick()
            _first_goes_on(True)

    try:
        return look(part_done)
    finally:
        _first_goes_on(False)


def _first_goes_on(own: bool) -> bool:
    """What the first worker says of itself; collective."""
    said = [own]
    dist.broadcast_object_list(said, src=0)
    return said[0]
