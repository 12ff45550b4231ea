"""The `git` program, kept from doing anything but reading one repository."""

import os
import subprocess
from collections.abc import Sequence
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
    """The contents of blobs, in the order asked for; one git process."""

    def __init__(self, git_folder: str, object_ids: Sequence[str]) -> None:
        self._git_folder = git_folder
        self._object_ids = object_ids
        self._num_sent = 0
        self._num_read = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "BlobReader":
        if self._object_ids:
            self._process = subprocess.Popen(
                _command(self._git_folder, "cat-file", "--batch"),
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=1 << 16,
            )
        return self

    def __exit__(self, *error: Any) -> None:
        if self._process is None:
            return
        if any(part is not None for part in error):
            self._process.kill()
        self._input.close()
        self._output.close()
        self._process.wait()

    def next_blob(self, max_bytes: int) -> bytes | None:
        """The next object's bytes; None if git has no such blob of at most `max_bytes`."""
        if self._num_read == self._num_sent:
            group = self._object_ids[self._num_sent : self._num_sent + _GROUP]
            self._send(group)
        self._num_read += 1
        words = self._output.readline().split()
        if len(words) != 3 or not words[2].isdigit():  # "<object> missing"; nothing if git has ended
            return None
        num_bytes = int(words[2])
        data = b""
        if num_bytes <= max_bytes:
            data = self._output.read(num_bytes)
        else:
            self._pass_over(num_bytes)
        self._output.read(1)
        return data if len(data) == num_bytes and words[1] == b"blob" else None

    def _send(self, group: Sequence[str]) -> None:
        try:
            self._input.write("".join(f"{object_id}\n" for object_id in group).encode())
            self._input.flush()
        except BrokenPipeError:  # git has ended: every answer is missing
            pass
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
