"""After a backward pass the streams of ZeRO 1 and 2 wait for each other; the host does not.

DeepSpeed exchanges gradients on a stream of its own (`overlap_comm`). At the end of every backward pass that exchanges
any, it makes the host wait for the whole GPU before the sums are used. That its two streams wait for each other is
enough for that.

ZeRO 3 keeps DeepSpeed's waits: the stream on which it gathers weights waits for nothing else, so only they keep it from
reading weights that are still being updated. It also waits for events, to bound the memory of gathered weights.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def order_streams_without_host(optimizer: Any) -> None:
    """Replace the host's wait in a ZeRO optimizer (1 or 2) that exchanges on a stream of its own."""
    epilogue = optimizer.independent_gradient_partition_epilogue

    def epilogue_without_wait() -> None:
        with _synchronize_replaced(lambda: _order(optimizer.reduction_stream)):
            epilogue()

    optimizer.independent_gradient_partition_epilogue = epilogue_without_wait


def exchanges_on_own_stream(optimizer: Any) -> bool:
    """Return whether an optimizer is one that `order_streams_without_host` is for."""
    own_stream = getattr(optimizer, "reduction_stream", None)
    return own_stream is not None and bool(optimizer.overlap_comm)


def _order(stream: Any) -> None:
    """Let what is given to `stream` or to the current stream from now on run after all that both were given before."""
    from deepspeed.accelerator import get_accelerator

    current = get_accelerator().current_stream()
    current.wait_stream(stream)
    stream.wait_stream(current)


@contextmanager
def _synchronize_replaced(wait: Callable[[], None]) -> Iterator[None]:
    """Let DeepSpeed's wait for the device be `wait` while the block runs."""
    from deepspeed.accelerator import get_accelerator

    accelerator: Any = get_accelerator()
    synchronize = accelerator.synchronize
    accelerator.synchronize = lambda *_: wait()
    try:
        yield
    finally:
        accelerator.synchronize = synchronize
