"""A folder that is there with all its files or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.errors import UserError
from cluster.storage import fsync_folder


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A temporary folder that becomes `path` when the block ends without an error; else nothing is left.

    Raises UserError when `path` is there already and is not an empty folder, or cannot be made.
    """
    path = path.resolve()
    try:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UserError(
                f"{path} is there already and not an empty folder: choose another name or remove it"
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent))
    except OSError as error:
        raise UserError(f"{path} cannot be made ({error.strerror}): choose another place") from None
    try:
        temporary.chmod(0o777 & ~_umask())
        yield temporary
        os.replace(temporary, path)
        fsync_folder(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
