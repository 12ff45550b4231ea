"""Why workers failed: the first cause among several failures, and whether it may pass."""

from typing import Any

from cluster.errors import FailureKind, RetryableError

_MAX_SHOWN_CHARS = 300
"""The most characters shown of Ray's messages: when memory runs out, they list every process."""


def failure_of(error: Any) -> Exception:
    """Return what made workers fail, of Ray Train's TrainingFailedError; the first cause if several workers failed.

    A RetryableError, or a RuntimeError for an error of the program itself.
    """
    controller = getattr(error, "controller_failure", None)
    causes = list(getattr(error, "worker_failures", {}).values()) or [controller or error]
    kinds = [(_KINDS.index(_kind_of(cause)), cause) for cause in causes]
    number, cause = min(kinds, key=lambda one: one[0])
    kind, text = _KINDS[number], _shown_line(cause)
    if kind is None:
        return RuntimeError(text)
    return RetryableError(text, kind)


_KINDS: tuple[FailureKind | None, ...] = (
    *("out of memory", "storage", "lost node", "lost worker", "missing resources"),
    None,
    "network",
)
"""Kinds of failures, causes before consequences: when one worker dies, the others lose their connections to it."""
_SIGNS: tuple[tuple[FailureKind, tuple[str, ...]], ...] = (
    ("out of memory", ("OutOfMemory", "out of memory", "DefaultCPUAllocator: can't allocate")),
    ("storage", ("Stale file handle", "Input/output error", "Transport endpoint", "StorageLost")),
    ("lost node", ("NodeDied", "node died", "The node", "node failure", "raylet died")),
    (
        "lost worker",
        ("ActorDied", "ActorUnavailable", "WorkerCrashed", "actor died", "worker died", "WorkerDied"),
    ),
    ("missing resources", ("WorkerGroupStartupTimeout", "insufficient", "placement group")),
    (
        "network",
        (
            "connectFullMesh",
            "Gloo",
            "gloo",
            "NCCL",
            "TCPStore",
            "DistBackendError",
            "Connection",
            "Broken pipe",
        ),
    ),
)
"""Words in the types and messages of Ray 2.60 and torch 2.13 by which a failure is recognised."""


def _kind_of(cause: BaseException) -> FailureKind | None:
    text = f"{type(cause).__name__} {cause}"
    return next((kind for kind, words in _SIGNS if any(word in text for word in words)), None)


def _shown_line(cause: BaseException) -> str:
    """Return the line that says most: the last of a traceback, the first of any other message."""
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()] or [type(cause).__name__]
    line = lines[-1] if "Traceback" in str(cause) else lines[0]
    return line if len(line) <= _MAX_SHOWN_CHARS else line[: _MAX_SHOWN_CHARS - 3] + "..."
