"""What the system says of a file or folder of a corpus, also where it refuses."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from cluster.errors import UserError


@dataclass(frozen=True)
class FileStatus:
    """Of the name itself, not of what a link points to. `mode` holds the kind of file."""

    mode: int
    num_bytes: int
    mtime_ns: int


def file_status(path: Path) -> FileStatus:
    """The status of a listed name; one that the system does not tell is a regular file of no bytes.

    So it stays listed, and reading it drops it by the rule `readable`.
    """
    try:
        status = path.lstat()
    except OSError:
        return FileStatus(stat.S_IFREG, 0, 0)
    return FileStatus(status.st_mode, status.st_size, status.st_mtime_ns)


def refuse_folder(error: OSError) -> NoReturn:
    """For `os.walk`: a folder that cannot be listed would leave its files without any fate."""
    name = os.fsencode(error.filename or "").decode("utf-8", "backslashreplace")
    raise UserError(
        f"folder {name} of the corpus cannot be read ({error.strerror}): make it readable or move it away"
    ) from error
