"""The exceptions a user may see, and how other exceptions are told in them."""


class UserError(Exception):
    """Something the user can mend: bad input, a damaged file, a missing resource.

    The message is one line that says what is wrong, where, and what to do. The command line prints it
    and exits with code 2; no traceback is shown.
    """


class UnfinishedError(UserError):
    """A user's error that ends work under way: what was done stays, and the same command goes on with it."""


class RetryableError(Exception):
    """Something that went wrong by itself and may go well when the same command is given again.

    One line as of a UserError; the command line ends with exit code 75 (EX_TEMPFAIL), for schedulers that retry.
    """


def first_line(error: BaseException) -> str:
    """What `error` says, in one line; its type if it says nothing."""
    text = str(error).strip()
    return text.splitlines()[0].strip() if text else type(error).__name__
