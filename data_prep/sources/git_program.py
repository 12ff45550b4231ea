"""The `git` program, kept from doing anything but reading one repository."""

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any, cast

from cluster.errors import UserError

# Object names are sent in groups that fit into a pipe, so that neither side waits for the other.
_GROUP = 256
_OPTIONS = (
    # Repositories of other users are read like any files; nothing of theirs is run.
    "-c", "safe.directory=*",
    # A partial clone would fetch what it lacks, by any transport its own config names.
    "-c", "protocol.allow=never",
)  # fmt: skip


class GitError(Exception):
    """What git said, in one line."""


def run_git(git_folder: str, *arguments: str) -> bytes:
    """The output of a git command; raises GitError, and UserError if there is no git."""
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
    """The contents of blobs, in the order asked for; one git process, and another after each it dies of."""

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
        """The next object's bytes; None if git has no such blob of at most `max_bytes`, or cannot unpack it."""
        if self._num_read == self._num_sent:
            if self._process is None:
                self._start()
            self._send(self._object_ids[self._num_sent : self._num_sent + _GROUP])
        self._num_read += 1
        header = self._output.readline()
        words = header.split()
        if not header.endswith(b"\n"):
            self._start_behind()
            return None
        if len(words) != 3 or not words[2].isdigit():  # "<object> missing"
            return None
        num_bytes = int(words[2])
        data = b""
        if num_bytes <= max_bytes:
            data = self._output.read(num_bytes)
        else:
            self._pass_over(num_bytes)
        if not self._output.read(1):  # the newline behind each object
            self._start_behind()
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

    def _start_behind(self) -> None:
        """git ends at an object that it cannot unpack: what was asked for behind it is asked for again."""
        self._stop()
        self._num_sent = self._num_read

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()  # whoever is still being answered does not listen
        with suppress(BrokenPipeError):
            cast(IO[bytes], process.stdin).close()
        cast(IO[bytes], process.stdout).close()
        process.wait()

    def _send(self, group: Sequence[str]) -> None:
        # If git has ended, its end is read where the answer should be.
        with suppress(BrokenPipeError):
            self._input.write("".join(f"{object_id}\n" for object_id in group).encode())
            self._input.flush()
        self._num_sent += len(group)

    def _pass_over(self, num_bytes: int) -> None:
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
    """Without the caller's GIT_ variables, which would point git elsewhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    quiet = {
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
    return {**kept, **quiet}
