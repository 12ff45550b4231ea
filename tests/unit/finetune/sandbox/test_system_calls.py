"""What the kernel refuses a jailed program, and that ordinary programs do not notice."""

import ast
import ctypes
import errno
from typing import Any

import pytest

from finetune.sandbox import kernel, system_calls
from finetune.sandbox.limits import Limits
from finetune.sandbox.run import containment_problem, run_python
from finetune.sandbox.system_calls import Filter

pytestmark = pytest.mark.skipif(containment_problem() is not None, reason=str(containment_problem()))

_LIMITS = Limits(wall_s=60, cpu_s=20)
_NONE = (0, 0, 0, 0, 0)
_CALL = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
results = {{}}
for name, number, *arguments in {calls}:
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    if result == 0 and name.startswith("clone"):
        os._exit(0)
    results[name] = ctypes.get_errno() if result < 0 else "allowed"
print(results)
"""
_ORDINARY = """
import os, subprocess, sys, threading
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(2) as pool:
    print(sum(pool.map(abs, (-1, -2))))
child = os.fork()
if child == 0:
    os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
command = [sys.executable, "-I", "-S", "-c", "print('started')"]
print(subprocess.run(command, capture_output=True, text=True).stdout.strip())
spawned = os.posix_spawn(command[0], command[:-1] + ["import os; os._exit(4)"], {})
print(os.waitstatus_to_exitcode(os.waitpid(spawned, 0)[1]))
"""


def number_of(name: str) -> int:
    return int(ctypes.CDLL("libseccomp.so.2").seccomp_syscall_resolve_name(name.encode()))


def results_of(calls: dict[str, tuple[str, tuple[int, ...]]]) -> dict[str, Any]:
    """The errno of each call made in the jail, by the given names."""
    listed = [(name, number_of(call), *arguments) for name, (call, arguments) in calls.items()]
    outcome = run_python(_CALL.format(calls=listed), _LIMITS)
    assert outcome.passed, outcome
    results: dict[str, Any] = ast.literal_eval(outcome.stdout)
    return results


@pytest.mark.parametrize("how", ["unshare", "clone"])
def test_new_namespaces_are_refused(how: str) -> None:
    kinds = {"user": kernel.NEW_USERS, "mounts": kernel.NEW_MOUNTS, "processes": kernel.NEW_PROCESSES}
    signal_at_end = 17 if how == "clone" else 0
    calls = {f"{how} {kind}": (how, (flag | signal_at_end, *_NONE)) for kind, flag in kinds.items()}
    assert results_of(calls) == dict.fromkeys(calls, errno.EPERM)


def test_clone3_is_not_there_so_that_libraries_go_back_to_clone() -> None:
    assert results_of({"clone3": ("clone3", (0, 88))}) == {"clone3": errno.ENOSYS}


@pytest.mark.parametrize(
    "name", ["setns", "mount", "umount2", "pivot_root", "fsopen", "move_mount", "mount_setattr"]
)
def test_mounts_and_other_processes_namespaces_are_refused(name: str) -> None:
    assert results_of({name: (name, _NONE)}) == {name: errno.EPERM}


def test_keyrings_are_refused() -> None:
    # Without the filter the first one answers with the number of a key.
    calls = {
        "keyctl": ("keyctl", (0, -3, 1, 0, 0)),
        "add_key": ("add_key", _NONE),
        "request_key": ("request_key", _NONE),
    }
    assert results_of(calls) == dict.fromkeys(calls, errno.EPERM)


def test_threads_and_processes_of_an_ordinary_program_work() -> None:
    outcome = run_python(_ORDINARY, _LIMITS)
    assert outcome.stdout.split() == ["3", "3", "started", "4"], outcome


def test_missing_library_is_said_and_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_found(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(system_calls.ctypes, "CDLL", not_found)
    with pytest.raises(OSError, match=r"libseccomp\.so\.2 is not installed: install the package libseccomp2"):
        Filter()
