"""What one worker finds out, all know."""

from collections.abc import Callable
from typing import TypeVar, cast

import torch.distributed as dist

from cluster.errors import UserError

T = TypeVar("T")


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
