"""Git repositories at a revision, read through the `git` program; nothing is checked out or written."""

import glob
import os
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import IO, Any, cast

from cluster.errors import UserError
from cluster.storage import fingerprint
from data_prep.documents import RawFile, Rejection
from data_prep.sources.config import GitConfig
from data_prep.sources.limits import ReadLimits
from data_prep.sources.listed import name_of
from data_prep.sources.records import excluded_by
from data_prep.sources.remote import is_remote, local_path
from data_prep.sources.units import WorkUnit, cut_runs, join_small, printable, printable_bytes, rejection_key
from data_prep.sources.vendored import Neighbours, vendored_by

# Object names are sent in groups that fit into a pipe's buffer, so that neither side waits for the other.
OBJECTS_PER_REQUEST = 256
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
            self._send(self._object_ids[self._num_sent : self._num_sent + OBJECTS_PER_REQUEST])
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


@dataclass(frozen=True, slots=True)
class GitEntry:
    """A file in a commit's tree; `object_id` is that of its blob."""

    path: str
    object_id: str
    num_bytes: int
    rejection: Rejection | None = None


def plan_git(config: GitConfig, source: str) -> list[WorkUnit]:
    """Return units of work: runs of a tree's entries, for each different repository.

    A folder that is not a repository or lacks the revision becomes a row (rule `readable`); UserError if that is true
    of all folders.
    """
    folders = _deduplicate([folder for path in config.path for folder in _folders(path)])
    names = _names(folders, config.repository)
    groups: list[list[WorkUnit]] = []
    refusals: list[UserError] = []
    for number, folder in enumerate(folders):
        try:
            git_folder = _git_folder(folder)
            commit = run_git(
                git_folder, "rev-parse", "--verify", "--end-of-options", f"{config.revision}^{{commit}}"
            )
            listing = run_git(git_folder, "ls-tree", "-r", "-z", "-l", "--full-tree", commit.decode().strip())
        except GitError as error:
            refusals.append(
                UserError(
                    f"source {source}: {printable(folder)} cannot be read at revision {config.revision} "
                    f"({error}): name a git repository and a revision that it has"
                )
            )
            # One entry for all files of the repository.
            rejection = Rejection("readable", None, f"revision {config.revision}: {error}")
            git_folder, entries = folder, [GitEntry(".", "", 0, rejection)]
        else:
            listed = _entries(listing)
            neighbours = Neighbours(entry.path for entry in listed)
            entries = [_reject(entry, names[number], config, neighbours) for entry in listed]
        units: list[WorkUnit] = []
        for part, run in enumerate(cut_runs([_size(entry) for entry in entries])):
            reader = GitReader(git_folder, names[number], tuple(entries[run]))
            key = [names[number], [(e.path, e.object_id, rejection_key(e.rejection)) for e in entries[run]]]
            num_bytes = sum(_size(entry) for entry in entries[run])
            name = f"{number} {names[number]} {part}"
            units.append(WorkUnit(source, name, num_bytes, fingerprint(["git", key]), reader))
        groups.append(units)
    if len(refusals) == len(folders):
        raise refusals[0]
    if not any(groups):
        raise UserError(
            f"source {source}: no file at revision {config.revision}: point it at another revision"
        )
    return join_small(groups)


@dataclass(frozen=True, slots=True)
class GitReader:
    """The reader of a run of entries of one repository."""

    git_folder: str
    repository: str
    entries: tuple[GitEntry, ...]

    def read(self, limits: ReadLimits) -> Iterator[RawFile]:
        wanted = [entry.object_id for entry in self.entries if _is_read(entry, limits)]
        with BlobReader(self.git_folder, wanted) as blobs:
            for entry in self.entries:
                data, rejection = None, entry.rejection
                if _is_read(entry, limits):
                    data = blobs.next_blob(limits.max_bytes_of(entry.path))
                    if data is None:
                        rejection = Rejection("readable", None, f"git cannot read object {entry.object_id}")
                rejection = rejection or limits.size_rejection(entry.num_bytes)
                yield RawFile(self.repository, entry.path, "", entry.num_bytes, data, rejection)


def _is_read(entry: GitEntry, limits: ReadLimits) -> bool:
    return entry.rejection is None and limits.wants(entry.path, entry.num_bytes)


def _entries(listing: bytes) -> list[GitEntry]:
    """Parse the output of `ls-tree -z -l`, MODE TYPE OBJECT SIZE<tab>PATH<nul>; return entries sorted by path."""
    entries = []
    for line in listing.split(b"\0"):
        if not line:
            continue
        fields, _, raw_path = line.partition(b"\t")
        mode, kind, object_id, size = fields.decode().split()
        rejection, num_bytes = None, 0
        if kind == "commit":
            rejection = Rejection("submodule", None, object_id)
        elif stat.S_ISLNK(int(mode, 8)):
            rejection = Rejection("link")
        elif size.isdigit():
            num_bytes = int(size)
        else:
            rejection = Rejection("readable", None, f"git has no object {object_id}")
        entries.append(GitEntry(printable_bytes(raw_path), object_id, num_bytes, rejection))
    return sorted(entries, key=lambda entry: (entry.path, entry.object_id))


def _reject(entry: GitEntry, repository: str, config: GitConfig, neighbours: Neighbours) -> GitEntry:
    """Return the entry, with a rejection if `exclude` matches it or if it is vendored (unless `keep_vendored`)."""
    pattern = excluded_by(repository, entry.path, config.exclude)
    if pattern is not None:
        return replace(entry, rejection=Rejection("excluded", None, pattern))
    if entry.rejection is not None or config.keep_vendored:
        return entry
    what = vendored_by(entry.path, neighbours)
    return entry if what is None else replace(entry, rejection=Rejection("vendored", None, what))


def _size(entry: GitEntry) -> int:
    """Return the bytes of an entry that may be read."""
    return 0 if entry.rejection else entry.num_bytes


def _folders(location: str) -> list[str]:
    if is_remote(location):
        raise UserError(
            f"source {location}: git repositories are read from disk: clone it, and name the clone"
        )
    path = local_path(location)
    if os.path.isdir(path):
        return [path]
    found = [match for match in sorted(glob.glob(path)) if os.path.isdir(match)]
    if not found:
        raise UserError(f"source {location}: there is no such folder: give the path of a git repository")
    return found


def _deduplicate(folders: Sequence[str]) -> list[str]:
    """Return the first folder of each repository: patterns may overlap, and `a`, `a/.` and `a/.git` are the same.

    Links are followed for the comparison; the repository's name is still that of the folder.
    """
    found: dict[str, str] = {}
    for folder in folders:
        found.setdefault(os.path.realpath(_git_folder(folder)), folder)
    return list(found.values())


def _git_folder(folder: str) -> str:
    inside = os.path.join(folder, ".git")
    return inside if os.path.exists(inside) else folder


def _names(folders: Sequence[str], repository: str | None) -> list[str]:
    """Return folder names without `.git`, with as many parent folders as make all of them different."""
    if repository is not None and len(folders) == 1:
        return [repository]
    plain = [os.path.normpath(folder).removesuffix("/.git").removesuffix(".git") for folder in folders]
    parts = [name.strip("/").split("/") for name in plain]
    depth = 1
    while depth < max(map(len, parts)) and len({tuple(p[-depth:]) for p in parts}) < len(set(folders)):
        depth += 1
    return [
        printable("/".join(p[-depth:])) or name_of(folder) for p, folder in zip(parts, folders, strict=True)
    ]
