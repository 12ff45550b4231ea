"""A supervisor: runs a command or a job again after failures that may pass.

It holds no state. When it is killed itself, the same command resumes the run, or follows the job that still runs.
"""

import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType

from cluster.errors import RetryableError
from cluster.reporter import Reporter

INTERRUPTED_EXIT_CODE = 130
MAX_ATTEMPTS = 10
_FIRST_PAUSE_S, _LAST_PAUSE_S = 5.0, 300.0
_LONG_ATTEMPT_S = 900.0
_MAX_UNEXPECTED = 1
_PR_SET_PDEATHSIG = 1
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def keep_alive(attempt: Callable[[], int], reporter: Reporter) -> int:
    """Call `attempt` until it ends for good; return its exit status.

    Tried again, after a pause that doubles, are failures that may pass (75), a lost cluster and a process that was
    killed by a signal, at most MAX_ATTEMPTS times in a row that each end within a quarter of an hour; an unexpected
    error (1) once. Errors of the user are raised.
    """
    reporter.line("keeping the run alive from here: if this command ends, run the same command again")
    num_failures, pause_s = 0, _FIRST_PAUSE_S
    while True:
        began_s = time.monotonic()
        try:
            code = attempt()
            reason = f"exit code {code}"
        except RetryableError as error:
            code, reason = os.EX_TEMPFAIL, str(error)
        if code in (0, 2, INTERRUPTED_EXIT_CODE):
            return code
        if time.monotonic() - began_s > _LONG_ATTEMPT_S:
            num_failures, pause_s = 0, _FIRST_PAUSE_S
        num_failures += 1
        if num_failures > (_MAX_UNEXPECTED if code == 1 else MAX_ATTEMPTS):
            reporter.warn(f"giving up after {num_failures} attempts ({reason})")
            return code
        wait_s = pause_s * random.uniform(0.8, 1.2)
        reporter.warn(f"the run ended ({reason}); trying again in {wait_s:.0f} s")
        time.sleep(wait_s)
        pause_s = min(2 * pause_s, _LAST_PAUSE_S)


def run_child(arguments: Sequence[str]) -> int:
    """Run permcode with `arguments` in a process of its own; return its exit status, 128 + N after signal N.

    SIGINT and SIGTERM are passed on to it. It gets SIGTERM, which makes a checkpoint, when this process is killed.
    To be called in the main thread.
    """
    command = [sys.executable, "-P", "-m", "pipeline.cli", *arguments]
    # A session of its own: Ctrl-C reaches it once, by way of this process.
    child = subprocess.Popen(command, start_new_session=True, preexec_fn=_end_with_parent)

    def forward(number: int, _frame: FrameType | None) -> None:
        child.send_signal(number)

    before = {number: signal.signal(number, forward) for number in _STOP_SIGNALS}
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
