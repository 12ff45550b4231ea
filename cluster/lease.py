"""A lease: who works in a folder on shared storage, and with which attempt; `flock` is not shared by all file systems.

The holder renews `.lease.json` every 3 s. Its workers read it and end when it was not renewed for 15 s, or when the
folder belongs to a later attempt. A successor waits until it has seen no renewal for longer than that, so the workers
of two attempts never write at the same time. Ages are counted on the reader's own clock: no two clocks are compared.
"""

import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Literal

import psutil

from cluster.errors import UserError
from cluster.storage import read_document, write_document

LEASE_S = 15.0
"""Workers end when the lease was not renewed for this long."""
_RENEW_S = 3.0
_READ_S = 1.0
_WRITE_AFTER_CLAIM_S = 5.0
_SUCCESSOR_WAITS_S = LEASE_S + 5 * _READ_S
"""Longer than LEASE_S, so that the last worker has ended when the successor starts."""
_PATIENCE_S = 3 * _RENEW_S
"""How long a reader on another machine watches a lease that is not renewed."""
_vanished: set[tuple[str, int, float]] = set()
"""Holders whose lease of some folder this process has seen expire: their others have expired, too."""
_NAME = ".lease.json"
_CLAIMS = ".leases"


@dataclass(frozen=True)
class _Record:
    """The content of `.lease.json`."""

    attempt: int
    renewal: int
    host: str
    boot: str
    """The holder's boot id: with the same one, its process can be looked up."""
    pid: int
    started_s: float
    is_released: bool = False

    @classmethod
    def own(cls, attempt: int) -> "_Record":
        started_s = psutil.Process().create_time()
        return cls(attempt, 0, socket.gethostname(), _boot_id(), os.getpid(), started_s)

    @property
    def holder(self) -> tuple[str, int, float]:
        """What tells processes of all machines apart."""
        return self.boot, self.pid, self.started_s

    def holder_is_gone(self) -> bool:
        """Return whether the holder released the lease, or was a process of this machine that has ended."""
        if self.is_released:
            return True
        if self.boot != _boot_id():
            return False
        try:
            return bool(psutil.Process(self.pid).create_time() != self.started_s)
        except psutil.NoSuchProcess:
            return True


@dataclass(frozen=True)
class Lease:
    """An attempt's right to write in `folder`, as its workers get it."""

    folder: Path
    attempt: int

    def is_held(self) -> bool:
        """Return whether no later attempt has begun. Raises OSError or UserError when that cannot be read."""
        record = _read(self.folder)
        return record is not None and record.attempt == self.attempt and not record.is_released

    def check(self) -> None:
        """End this process if the lease is not held any more: a later attempt may be writing already.

        The file is 300 bytes and in the page cache of the node between two renewals; storage that does not answer
        stops the write that would follow, too.
        """
        with suppress(OSError, UserError):
            if not self.is_held():
                _end_process("its attempt was ended")


@dataclass(frozen=True)
class LeaseSight:
    """What a look at a folder's lease showed."""

    attempt: int
    host: str
    pid: int
    state: Literal["held", "released", "gone", "silent"]
    """held: renewed while it was watched, or its process lives on this machine; gone: its process, of this machine,
    has ended; silent: not renewed while it was watched."""
    is_here: bool
    """Whether the holder is a process of this machine, whose clock is this one."""
    watched_s: float
    """How long the lease was watched."""

    @property
    def is_alive(self) -> bool:
        """Whether the holder works in the folder."""
        return self.state == "held"


def look_at_lease(folder: Path, patience_s: float = _PATIENCE_S) -> LeaseSight | None:
    """Return who holds the lease of `folder`; None if nobody ever had one.

    A holder on another machine is watched until it renews the lease, for at most `patience_s`: no clocks are compared.
    """
    began_s = time.monotonic()
    record = _read(folder)
    if record is None:
        return None
    is_here = record.boot == _boot_id()
    state: Literal["held", "released", "gone", "silent"] = "silent"
    while state == "silent":
        watched_s = time.monotonic() - began_s
        now = _read(folder) or record
        if now.is_released:
            state = "released"
        elif is_here:
            state = "gone" if record.holder_is_gone() else "held"
        elif now != record:
            state = "held"
        elif watched_s >= patience_s:
            break
        else:
            time.sleep(_RENEW_S / 10)
    return LeaseSight(now.attempt, now.host, now.pid, state, is_here, watched_s)


class HeldLease(AbstractContextManager["HeldLease"]):
    """Holds the lease of a folder during the block. `lease` is for the workers.

    Entering waits until the workers of a holder that vanished have ended, about 20 s after its last renewal;
    `on_wait` gets the reason. UserError when another process holds the lease.
    """

    def __init__(self, folder: Path, on_wait: Callable[[str], None] = lambda reason: None) -> None:
        self._folder, self._on_wait = folder, on_wait
        self._is_lost = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def __enter__(self) -> "HeldLease":
        before = _read(self._folder)
        if before is not None:
            self._wait_for_end_of(before)
        self._record = _Record.own(_claim(self._folder, before.attempt if before is not None else 0))
        self.lease = Lease(self._folder, self._record.attempt)
        _write(self._folder, self._record)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def is_lost(self) -> bool:
        """Return whether a later attempt has taken over, as after this process was frozen for a while."""
        return self._is_lost

    def release(self) -> None:
        """End the attempt: workers that still run end within seconds."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join(timeout=_RENEW_S)  # behind storage that does not answer it may hang
        with suppress(OSError, UserError):
            if not self._thread.is_alive() and self.lease.is_held():
                _write(self._folder, replace(self._record, is_released=True))

    def _renew(self) -> None:
        while not self._ended.wait(_RENEW_S):
            with suppress(OSError, UserError):  # workers end by themselves if this lasts
                if not self.lease.is_held():
                    self._is_lost = True
                    return
                self._record = replace(self._record, renewal=self._record.renewal + 1)
                _write(self._folder, self._record)

    def _wait_for_end_of(self, before: _Record) -> None:
        if before.holder_is_gone() or before.holder in _vanished:
            return
        self._on_wait(
            f"attempt {before.attempt} (process {before.pid} on {before.host}) has not given its lease back: waiting "
            f"up to {_SUCCESSOR_WAITS_S:g} s until it has expired"
        )
        deadline_s = time.monotonic() + _SUCCESSOR_WAITS_S
        while time.monotonic() < deadline_s:
            time.sleep(_READ_S)
            now = _read(self._folder)
            if now is None or now.holder_is_gone():
                return
            if now != before:
                raise UserError(
                    f"{self._folder} is in use by another permcode process ({now.pid} on {now.host}): wait for it or "
                    "stop it"
                )
        _vanished.add(before.holder)


def end_attempt(folder: Path) -> bool:
    """End the attempt that holds the lease of `folder`, if there is one: its workers end within seconds.

    For who holds the lease of a folder above it; returns whether there was one.
    """
    record = _read(folder)
    if record is None or record.is_released:
        return False
    _write(folder, replace(_Record.own(_claim(folder, record.attempt)), is_released=True))
    return True


class LeaseGuard(AbstractContextManager["LeaseGuard"]):
    """Ends this worker process when its attempt's lease has expired or a later attempt has begun.

    Storage that does not answer ends nobody: then the holder cannot renew either, and nothing can be written. Only
    renewals that are missing although the file can be read count.
    """

    def __init__(
        self, lease: Lease, end: Callable[[str], None] = lambda reason: _end_process(reason)
    ) -> None:
        self._lease, self._end = lease, end
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lease-guard", daemon=True)

    def __enter__(self) -> "LeaseGuard":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()

    def _watch(self) -> None:
        last: _Record | None = None
        unchanged_s = 0.0
        while not self._ended.wait(_READ_S):
            try:
                record = _read(self._lease.folder)
            except (OSError, UserError):
                continue
            if record is None:  # the folder was removed, which others notice
                continue
            unchanged_s = unchanged_s + _READ_S if record == last else 0.0
            last = record
            if record.attempt != self._lease.attempt:
                return self._end(f"attempt {record.attempt} has begun")
            if record.is_released:
                return self._end("its attempt was ended")
            if unchanged_s >= LEASE_S:
                return self._end(f"the process that started it gave no sign for {LEASE_S:g} s")


def _end_process(reason: str) -> None:
    print(f"permcode: this worker ends: {reason}", file=sys.stderr, flush=True)
    os._exit(os.EX_TEMPFAIL)


def _claim(folder: Path, last_attempt: int) -> int:
    """Return the number of a new attempt, which no other process can have: its file is created exclusively."""
    claims = folder / _CLAIMS
    claims.mkdir(parents=True, exist_ok=True)
    taken = [int(path.name) for path in claims.iterdir() if path.name.isdigit()]
    in_use = UserError(
        f"{folder} is in use by another permcode process, which has just started: wait or stop it"
    )
    deadline_s = time.monotonic() + _WRITE_AFTER_CLAIM_S
    # A later number is of a process that is about to write its lease, or was killed before it did.
    while max(taken, default=0) > last_attempt and time.monotonic() < deadline_s:
        now = _read(folder)
        if now is not None and now.attempt > last_attempt:
            raise in_use
        time.sleep(_READ_S / 10)
    attempt = max([last_attempt, *taken]) + 1
    try:
        (claims / str(attempt)).touch(exist_ok=False)
    except FileExistsError:
        raise in_use from None
    for number in taken:
        (claims / str(number)).unlink(missing_ok=True)
    return attempt


def _read(folder: Path) -> _Record | None:
    try:
        return _Record(**read_document(folder / _NAME))
    except FileNotFoundError:
        return None
    except TypeError:
        raise UserError(f"{folder / _NAME} is damaged: remove it when no run works in the folder") from None


def _write(folder: Path, record: _Record) -> None:
    write_document(folder / _NAME, asdict(record))


def _boot_id() -> str:
    """Return an id of this machine's boot and process namespace; random where the kernel does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}-{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return secrets.token_hex(8)
