"""The exceptions whose messages users see, and the one-line text of any other exception."""

from typing import Literal

FailureKind = Literal[
    "lost process",
    "lost worker",
    "lost node",
    "lost cluster",
    "hang",
    "storage",
    "network",
    "missing resources",
    "out of memory",
]
"""What a RetryableError lost; docs/cluster.md has the table."""


class UserError(Exception):
    """Something the user can fix: bad input, a damaged file, a missing resource.

    The message is one line that says what is wrong, where, and what to do. The command line prints it
    and exits with code 2; no traceback is shown.
    """


class UnfinishedError(UserError):
    """A UserError that interrupts work: what was done so far is kept, and the same command resumes it."""


class RetryableError(Exception):
    """A failure that the user did not cause and that may not happen again when the same command is retried.

    The message is one line, as in a UserError; the command line prints it after `kind` and exits with code 75
    (EX_TEMPFAIL), for schedulers that retry.
    """

    def __init__(self, message: str, kind: FailureKind = "lost process") -> None:
        super().__init__(message)
        self.kind = kind

    def __reduce__(self) -> tuple[type["RetryableError"], tuple[str, FailureKind]]:
        return type(self), (str(self), self.kind)


_AUTOFLUSH = "(raised as a result of Query-invoked autoflush"


def first_line(error: BaseException) -> str:
    """Return the first line of the message of `error`, or the name of its type if the message is empty.

    SQLAlchemy's remark on autoflush, which comes before the error itself, is left out.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(_AUTOFLUSH)]
    return lines[0] if lines else type(error).__name__
