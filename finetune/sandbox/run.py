"""Runs untrusted Python programs, each in a jail of its own (`finetune.sandbox.jail`)."""

import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from cluster.doctor import Check
from cluster.errors import UserError, first_line
from finetune.sandbox.limits import MAX_OUTPUT_BYTES, Limits, Outcome, Status

_SET_UP_S = 30.0
"""The time limit for building the jail, which takes a tenth of a second on an idle machine."""
_CLEAN_UP_S = 10.0
_TAIL_CHARACTERS = 2000
_REPORT_BYTES = 65536
_CODE_ROOT = str(Path(__file__).resolve().parents[2])
JAIL_PROGRAM = (
    f"import sys; sys.path.insert(0, {_CODE_ROOT!r}); from finetune.sandbox.jail import main; main()"
)


def run_python(program: str, limits: Limits) -> Outcome:
    """Run a program in a jail: it cannot change or read files, reach the network, or outlive the call.

    It has Python's standard library and no other package. Raises UserError if this machine cannot contain programs.
    """
    secret = secrets.token_hex(16)
    with _request(secret, program) as request_file, _pipe() as control, _pipe() as verdict:
        settings = limits.model_dump() | {
            "interpreter": _interpreter(),
            "folders": _interpreter_folders(),
            "control_file": control.write_end,
            "verdict_file": verdict.write_end,
        }
        process = subprocess.Popen(
            [_interpreter(), "-I", "-S", "-B", "-X", "utf8", "-c", JAIL_PROGRAM, json.dumps(settings)],
            stdin=request_file,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(control.write_end, verdict.write_end),
            env={},
            cwd="/",
            start_new_session=True,
        )
        control.close_write_end()
        verdict.close_write_end()
        with process:
            watch = _Watch(process, control.read_end, verdict.read_end, limits)
            try:
                ended_by = watch.until_the_end()
            finally:
                # When the launcher ends, process 1 dies, and with it all processes in the jail.
                _kill(process)
    return _outcome(watch, ended_by, secret, limits)


def run_many(
    programs: Sequence[str],
    limits: Limits,
    num_workers: int,
    on_progress: Callable[[int], None] | None = None,
) -> list[Outcome]:
    """Run each program with `run_python`, `num_workers` at a time; return the outcomes in the order given.

    `on_progress` is called with the number of programs that are done.
    """
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(max_workers=num_workers) as pool:
        try:
            for outcome in pool.map(lambda program: run_python(program, limits), programs):
                outcomes.append(outcome)
                if on_progress is not None:
                    on_progress(len(outcomes))
        finally:
            pool.shutdown(cancel_futures=True)
    return outcomes


@lru_cache(maxsize=1)
def containment_problem() -> str | None:
    """Return the reason why programs cannot be contained on this machine, None if they can."""
    try:
        run_python("", Limits())
    except UserError as error:
        return first_line(error)
    return None


def sandbox_check() -> Check:
    """Return what `permcode doctor` prints about the sandbox."""
    problem = containment_problem()
    if problem is None:
        return Check("sandbox", "ok", "generated programs can be run (pass@k)")
    return Check("sandbox", "warning", f"no generated program is run: {problem}")


@dataclass
class _Pipe:
    read_end: int
    write_end: int
    is_write_end_open: bool = True

    def close_write_end(self) -> None:
        if self.is_write_end_open:
            os.close(self.write_end)
            self.is_write_end_open = False


@contextmanager
def _pipe() -> Iterator[_Pipe]:
    pipe = _Pipe(*os.pipe())
    try:
        yield pipe
    finally:
        pipe.close_write_end()
        os.close(pipe.read_end)


@contextmanager
def _request(secret: str, program: str) -> Iterator[int]:
    """Open a file in memory with the request that the runner reads from stdin."""
    file = os.memfd_create("program")
    try:
        # A broken prediction may contain surrogates. JSON's escapes keep them, and the program then fails by itself.
        with open(file, "w", encoding="ascii", closefd=False) as stream:
            json.dump({"secret": secret, "program": program}, stream)
        os.lseek(file, 0, os.SEEK_SET)
        yield file
    finally:
        os.close(file)


@dataclass
class _Watch:
    """Reads all output of a jail until its processes have ended, and kills them when a limit is reached."""

    process: subprocess.Popen[bytes]
    control_file: int
    verdict_file: int
    limits: Limits
    received: dict[str, bytearray] = field(default_factory=dict)
    started_at: float | None = None
    ended_at: float = 0.0

    def until_the_end(self) -> Status | None:
        """Read until all processes have ended; return the limit that ended the program, None if it ended by itself."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        ended_by: Status | None = None
        deadline = time.monotonic() + _SET_UP_S
        with selectors.DefaultSelector() as selector:
            for name, file in (
                ("stdout", self.process.stdout.fileno()),
                ("stderr", self.process.stderr.fileno()),
                ("control", self.control_file),
                ("verdict", self.verdict_file),
            ):
                self.received[name] = bytearray()
                selector.register(file, selectors.EVENT_READ, name)
            while selector.get_map():
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    if ended_by is not None:
                        raise RuntimeError("a killed program's processes did not end")
                    ended_by = "timeout"
                elif ended_by is None and self._num_output_bytes() > MAX_OUTPUT_BYTES:
                    ended_by = "output"
                else:
                    self._read_some(selector, left_s)
                    if self.started_at is None and b"ready" in self.received["control"]:
                        self.started_at = time.monotonic()
                        deadline = self.started_at + self.limits.wall_s
                    continue
                _kill(self.process)
                deadline = time.monotonic() + _CLEAN_UP_S
        self.ended_at = time.monotonic()
        return ended_by

    def _num_output_bytes(self) -> int:
        return len(self.received["stdout"]) + len(self.received["stderr"])

    def _read_some(self, selector: selectors.BaseSelector, wait_s: float) -> None:
        for key, _ in selector.select(wait_s):
            data = os.read(key.fd, 65536)
            if not data:
                selector.unregister(key.fd)
                continue
            kept = self.received[key.data]
            room = (_REPORT_BYTES if key.data in ("control", "verdict") else 2 * MAX_OUTPUT_BYTES) - len(kept)
            kept += data[: max(0, room)]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the launcher and process 1, which are one group; all other processes in the jail die with process 1."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        # It has ended and was waited for.
        pass


def _outcome(watch: _Watch, ended_by: Status | None, secret: str, limits: Limits) -> Outcome:
    report: dict[str, Any] = {}
    for line in watch.received["control"].decode().splitlines():
        report |= json.loads(line)
    stderr = watch.received["stderr"].decode(errors="replace")
    if "error" in report or watch.started_at is None:
        reason = (
            report.get("error") or stderr.strip().rpartition("\n")[2] or "the sandbox was not ready in time"
        )
        raise UserError(
            f"programs cannot be contained on this machine ({reason}): run where Linux namespaces may be made, as root "
            "with CAP_SYS_ADMIN or as a user where user namespaces are allowed"
        )
    return Outcome(
        ended_by or _own_end(watch.received["verdict"], report, secret, limits),
        watch.ended_at - watch.started_at,
        watch.received["stdout"].decode(errors="replace"),
        stderr[-_TAIL_CHARACTERS:],
    )


def _own_end(verdict: bytearray, report: dict[str, Any], secret: str, limits: Limits) -> Status:
    """Return the status of a program that was not ended by an outside limit."""
    verdicts: tuple[Status, ...] = ("passed", "failed", "memory")
    for status in verdicts:
        if f"{secret} {status}\n".encode() in verdict:
            return status
    wait_status = report.get("status")
    if wait_status is None or not os.WIFSIGNALED(wait_status):
        return "failed"
    is_out_of_time = os.WTERMSIG(wait_status) == signal.SIGXCPU or report["cpu_s"] >= limits.cpu_s
    return "timeout" if is_out_of_time else "killed"


def _interpreter() -> str:
    """Return the base interpreter of the virtual environment, so that generated programs do not get its packages."""
    return os.path.realpath(sys.executable)


def _interpreter_folders() -> list[str]:
    """Return the folders of the interpreter and its library, outermost first."""
    folders = {sys.base_prefix, sys.base_exec_prefix, os.path.dirname(_interpreter())}
    return sorted(os.path.realpath(folder) for folder in folders)
