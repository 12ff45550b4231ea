"""Calls of the `git` program, restricted to reading one repository."""

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any, cast

from cluster.errors import UserError

# Object names are sent in groups that fit into a pipe's buffer, so that neither side waits for the other.
_GROUP = 256
_OPTIONS = (
    # Repositories of other users are read like other files; none of their code is run.
    "-c", "safe.directory=*",
    # A partial clone would fetch missing objects, by any transport that its own config names.
    "-c", "protocol.allow=never",
)  # fmt: skip


class GitError(Exception):
    """A git command failed; the message is git's own, in one line."""


def run_git(git_folder: str, *arguments: str) -> bytes:
    """Return the output of a git command. GitError when it fails, UserError when git is not installed."""
    try:
        done = subprocess.run(
            _command(git_folder, *arguments),
            env=_environment(),
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError as error:
        raise UserError("git is not installed: install it to read git repositories") from error
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise GitError(lines[-1].removeprefix("fatal: ") if lines else f"git ended with {done.returncode}")
    return done.stdout


class BlobReader:
    """Reads blobs in the given order from a git process, which is restarted when it dies of an object."""

    def __init__(self, git_folder: str, object_ids: Sequence[str]) -> None:
        self._git_folder = git_folder
        self._object_ids = object_ids
        self._num_sent = 0
        self._num_read = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "BlobReader":
        return self

    def __exit__(self, *error: Any) -> None:
        self._stop()

    def next_blob(self, max_bytes: int) -> bytes | None:
        """Return the next object's bytes; None if it is no blob of at most `max_bytes`, missing or damaged."""
        if self._num_read == self._num_sent:
            if self._process is None:
                self._start()
            self._send(self._object_ids[self._num_sent : self._num_sent + _GROUP])
        self._num_read += 1
        header = self._output.readline()
        words = header.split()
        if not header.endswith(b"\n"):
            self._restart_after_failure()
            return None
        if len(words) != 3 or not words[2].isdigit():  # "<object> missing"
            return None
        num_bytes = int(words[2])
        data = b""
        if num_bytes <= max_bytes:
            data = self._output.read(num_bytes)
        else:
            self._skip(num_bytes)
        if not self._output.read(1):  # the newline after each object
            self._restart_after_failure()
            return None
        return data if len(data) == num_bytes and words[1] == b"blob" else None

    def _start(self) -> None:
        self._process = subprocess.Popen(
            _command(self._git_folder, "cat-file", "--batch"),
            env=_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=1 << 16,
        )

    def _restart_after_failure(self) -> None:
        """Stop git, which exits at an object that it cannot unpack; the objects after that are requested again."""
        self._stop()
        self._num_sent = self._num_read

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()  # its remaining output is not needed
        with suppress(BrokenPipeError):
            cast(IO[bytes], process.stdin).close()
        cast(IO[bytes], process.stdout).close()
        process.wait()

    def _send(self, group: Sequence[str]) -> None:
        # If git has exited, reading the answer finds that.
        with suppress(BrokenPipeError):
            self._input.write("".join(f"{object_id}\n" for object_id in group).encode())
            self._input.flush()
        self._num_sent += len(group)

    def _skip(self, num_bytes: int) -> None:
        while num_bytes > 0 and (data := self._output.read(min(num_bytes, 1 << 20))):
            num_bytes -= len(data)

    @property
    def _input(self) -> IO[bytes]:
        return cast(IO[bytes], cast(subprocess.Popen[bytes], self._process).stdin)

    @property
    def _output(self) -> IO[bytes]:
        return cast(IO[bytes], cast(subprocess.Popen[bytes], self._process).stdout)


def _command(git_folder: str, *arguments: str) -> list[str]:
    return ["git", f"--git-dir={git_folder}", *_OPTIONS, *arguments]


def _environment() -> dict[str, str]:
    """Return the environment without the caller's GIT_ variables, which would redirect git."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    quiet = {
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
    return {**kept, **quiet}
