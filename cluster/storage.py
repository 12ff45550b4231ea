"""Files that are either complete or absent: atomic writes, checksums, locks."""

import errno
import fcntl
import hashlib
import json
import os
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from cluster.errors import UnfinishedError, UserError
from cluster.fault_points import fault_point

_HASH_CHUNK_BYTES = 1 << 20
_LOCK_POLL_S = 0.2
_CHECKSUM_KEY = "checksum"
_CHECKSUM_PREFIX = "sha256:"
"""Prefix of the value, so that one damaged byte cannot make both the key and its value unrecognisable."""


def sha256_bytes(data: bytes | memoryview) -> str:
    """Return the hex SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Return the hex SHA-256 of a file, which is read in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def canonical_json(value: Any) -> str:
    """Return JSON that is the same text for equal values: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fingerprint(value: Any) -> str:
    """Return the hex SHA-256 of the canonical JSON of `value`: the same for equal values on every machine."""
    return sha256_bytes(canonical_json(value).encode())


def fsync_folder(folder: Path) -> None:
    """Sync `folder` to disk, so that renames inside it survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_private_folder(folder: Path) -> bool:
    """Create `folder` with mode 0700, or set that mode if it exists.

    Return False if it cannot be created or belongs to another user. For names that any user could take first, such as
    those below /tmp.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            return False
        folder.chmod(0o700)
    except OSError:
        return False
    return True


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that becomes `path` when the block ends without an error.

    Readers see the old file or the complete new one. On any error the temporary file is removed. UnfinishedError when
    the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A random name, because writers of the same file may be threads of one process or on different machines.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("wb") as file:
            fault_point("file.opened")
            yield file
            file.flush()
            fault_point("file.written")
            os.fsync(file.fileno())
        fault_point("file.synced")
        os.replace(temporary, path)
        fault_point("file.renamed")
        fsync_folder(path.parent)
        fault_point("file.durable")
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UnfinishedError(
                f"disk full while writing {path}: free some space and run the same command again"
            ) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically."""
    with atomic_file(path) as file:
        file.write(data)


def write_json(path: Path, value: Any) -> None:
    """Write `value` to `path` atomically, as indented JSON."""
    write_bytes(path, (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode())


def read_json(path: Path, advice: str = "remove it and run the same command again") -> Any:
    """Parse a JSON file. UserError, which names the file and ends with `advice`, when it is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path} is damaged (not JSON): {advice}") from error


def document_bytes(values: Mapping[str, Any]) -> bytes:
    """Return `values` as indented JSON, with the fingerprint of the rest of the object under "checksum"."""
    # Parsed again, as a reader does: keys that are numbers become strings, which sort in another order.
    content = json.loads(json.dumps(dict(values)))
    document = content | {_CHECKSUM_KEY: _CHECKSUM_PREFIX + fingerprint(content)}
    return (json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def write_document(path: Path, values: Mapping[str, Any]) -> None:
    """Write `document_bytes(values)` to `path` atomically; `read_document` reads it."""
    write_bytes(path, document_bytes(values))


def read_document(path: Path, advice: str = "remove it and run the same command again") -> dict[str, Any]:
    """Return the object that `write_document` wrote, without its checksum.

    UserError, with `advice`, when the checksum differs. A file without a checksum, written by an older permcode or
    by hand, is not checked.
    """
    values = read_json(path, advice)
    if not isinstance(values, dict):
        raise UserError(f"{path} is damaged (not a JSON object): {advice}")
    expected = values.pop(_CHECKSUM_KEY, None)
    if expected is None and f'"{_CHECKSUM_PREFIX}' not in path.read_text(encoding="utf-8"):
        return values
    if expected != _CHECKSUM_PREFIX + fingerprint(values):
        raise UserError(f"{path} is damaged (its checksum differs): {advice}")
    return values


@contextmanager
def exclusive_lock(path: Path, wait_s: float = 0.0) -> Iterator[None]:
    """Hold an exclusive lock on `path` while the block runs; the kernel frees it even after kill -9.

    UserError when another process still holds it after `wait_s` seconds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline_s = time.monotonic() + wait_s
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline_s:
                    raise UserError(
                        f"{path.parent} is in use by another permcode process: wait for it or stop it"
                    ) from None
                time.sleep(_LOCK_POLL_S)
        yield


def is_locked(path: Path) -> bool:
    """Return whether a process holds `exclusive_lock(path)` now."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
