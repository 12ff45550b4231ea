"""Lets DeepSpeed treat the CPU as a GPU: it makes streams and events, and the host's waits for them are noted.

Streams here do nothing: the work is done when it is given to them. So what is seen is where DeepSpeed's code for GPUs
makes the host wait, and not whether its streams are in the right order.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, ClassVar

from torch import Tensor


class Stream:
    """A stream whose work is always done."""

    note: ClassVar[Callable[[str], None]] = staticmethod(lambda what: None)

    def __init__(self, *_: Any, **__: Any) -> None:
        """Streams may be made for a device and with a priority."""

    def wait_stream(self, stream: "Stream") -> None:
        assert isinstance(stream, Stream)

    def wait_event(self, event: "Event") -> None:
        assert isinstance(event, Event)

    def synchronize(self) -> None:
        Stream.note("wait for a stream")


class Event:
    """An event that has happened: DeepSpeed asks, and waits only for one that has not."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Events may be made with timing."""

    def record(self, *_: Any) -> None:
        return

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        Stream.note("wait for an event")


def pretend_gpu(note: Callable[[str], None]) -> None:
    """Let DeepSpeed treat the CPU as a GPU in this process from now on; `note` is called at each wait of the host."""
    from deepspeed.accelerator import get_accelerator

    Stream.note = staticmethod(note)
    current, accelerator = Stream(), get_accelerator()
    kind: Any = type(accelerator)
    kind.Stream, kind.Event = Stream, Event
    for name in ("is_synchronized_device", "resolves_data_dependency", "handles_memory_backpressure"):
        setattr(accelerator, name, lambda: False)
    replaced: Any = accelerator
    replaced.stream = lambda stream: nullcontext()
    replaced.current_stream = replaced.default_stream = lambda *_: current
    replaced.synchronize = lambda *_: Stream.note("wait for the device")
    anything: Any = Tensor
    anything.record_stream = lambda *_: None
