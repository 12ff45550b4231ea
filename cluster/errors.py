"""The one exception a user may see."""


class UserError(Exception):
    """Something the user can mend: bad input, a damaged file, a missing resource.

    The message is one line that says what is wrong, where, and what to do. The command line prints it
    and exits with code 2; no traceback is shown.
    """
