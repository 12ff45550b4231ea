"""A request to stop, however it comes, is a KeyboardInterrupt."""

import signal
from types import FrameType


def interrupt_on_sigterm() -> None:
    """From now on SIGTERM raises KeyboardInterrupt; to be called in the main thread, and again after Ray has
    started: its own handler would abort the process with a stack trace."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
