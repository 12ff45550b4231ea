"""Builds the jail and starts the interpreter in it. Standard library only; runs as a process of its own.

Three processes: the launcher, outside, enters new namespaces; process 1 of the new process namespace watches; its
child, without any privileges, is the program. When process 1 ends the kernel kills all processes inside, so no process
outlives a program, and a fork bomb ends at once.

The program sees: a read-only root with the interpreter and the system's libraries, an empty folder in memory as home
and working folder, null and random devices; no other file, process, network or environment of the machine. If the
caller is root, the program runs under an unused user id; otherwise under the caller's, alone in its user namespace. The
kernel refuses it new namespaces, mounts and keyrings (`system_calls`). Not protected: the kernel's other system calls,
and side channels.
"""

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any, NoReturn

from finetune.sandbox import kernel
from finetune.sandbox.system_calls import Filter

HOME = "/sandbox"
_MAX_OPEN_FILES = 64
"""Per process."""
_OLD_ROOT = "/old"
_ANY_FOLDER = "/tmp"
"""Where the new root is mounted first; any existing folder works."""
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
_DEVICES = ("null", "zero", "random", "urandom")
_FIRST_USER, _NUM_USERS = 61184, 4336
"""systemd's range of user ids that are only used temporarily."""
_ENVIRONMENT = {"HOME": HOME, "TMPDIR": HOME, "PATH": "", "LANG": "C.UTF-8"}


def main() -> NoReturn:
    """Launch the program. `argv[1]` is JSON: limits, interpreter, its folders, two file descriptors for reports."""
    settings = json.loads(sys.argv[1])
    control = settings["control_file"]
    # The program must not inherit it: its writes would be read as reports of the jail.
    os.set_inheritable(control, False)
    runner = Path(__file__).with_name("program_main.py").read_text(encoding="utf-8")
    try:
        kernel.die_with_parent()
        # If the machine runs out of memory, the kernel kills the program first.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        refused_calls = Filter()
        user = _enter_namespaces()
        _build_root([*settings["folders"], *_LIBRARIES], settings["disk_bytes"])
        first_process = os.fork()
    except OSError as error:
        _report(control, {"error": error.strerror or str(error)})
        os._exit(1)
    if first_process == 0:
        _watch(settings, user, runner, refused_calls)
    os.close(control)
    os.waitpid(first_process, 0)
    os._exit(0)


def _enter_namespaces() -> int | None:
    """Enter new namespaces of all kinds; return the user id to change to, None if the caller's is kept."""
    all_kinds = (
        kernel.NEW_MOUNTS | kernel.NEW_PROCESSES | kernel.NEW_NETWORK | kernel.NEW_IPC | kernel.NEW_HOST_NAME
    )
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        kernel.unshare(all_kinds)
        kernel.make_mounts_private()
        return _FIRST_USER + os.getpid() % _NUM_USERS
    kernel.unshare(all_kinds | kernel.NEW_USERS)
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    kernel.make_mounts_private()
    return None


def _build_root(folders: list[str], disk_bytes: int) -> None:
    """Build a new root that contains only the folders, read-only, the devices and a home in memory."""
    kernel.mount_tmpfs(_ANY_FOLDER, "size=1m,nr_inodes=1k,mode=755")
    os.mkdir(_ANY_FOLDER + _OLD_ROOT)
    kernel.pivot_root(_ANY_FOLDER, _ANY_FOLDER + _OLD_ROOT)
    os.chdir("/")
    for path in folders:
        _show(path)
    for device in _DEVICES:
        _show_file(f"/dev/{device}")
    os.mkdir(HOME)
    kernel.mount_tmpfs(HOME, f"size={disk_bytes},nr_inodes=4k,mode=777")
    kernel.detach(_OLD_ROOT)
    os.rmdir(_OLD_ROOT)
    kernel.make_read_only("/", recursive=False)
    os.chdir(HOME)


def _show(path: str) -> None:
    """Bind the file or folder to the same path in the new root, read-only; skip it if it does not exist outside."""
    source = _OLD_ROOT + path
    if os.path.lexists(path) or not os.path.lexists(source):
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.islink(source):
        os.symlink(os.readlink(source), path)
    elif os.path.isdir(source):
        os.mkdir(path)
        kernel.bind(source, path)
        kernel.make_read_only(path, recursive=True)
    else:
        _show_file(path)
        kernel.make_read_only(path, recursive=False)


def _show_file(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(path).touch()
    kernel.bind(_OLD_ROOT + path, path)


def _watch(settings: dict[str, Any], user: int | None, runner: str, refused_calls: Filter) -> NoReturn:
    """Run process 1: start the program, wait for it, report how it ended. When it ends, the kernel kills the rest."""
    control = settings["control_file"]
    try:
        kernel.die_with_parent()
        program = os.fork()
        if program == 0:
            _become_program(settings, user, runner, refused_calls)
        while True:
            ended, status, usage = os.wait4(-1, 0)
            if ended == program:
                break
        _report(control, {"status": status, "cpu_s": usage.ru_utime + usage.ru_stime})
    finally:
        os._exit(0)


def _become_program(
    settings: dict[str, Any], user: int | None, runner: str, refused_calls: Filter
) -> NoReturn:
    control = settings["control_file"]
    try:
        os.setsid()
        if user is not None:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        kernel.give_up_new_privileges()
        refused_calls.load()
        _report(control, {"ready": True})
        _set_limits(settings)
        verdict = settings["verdict_file"]
        os.set_inheritable(verdict, True)
        interpreter = settings["interpreter"]
        arguments = [interpreter, "-I", "-S", "-B", "-X", "utf8", "-c", runner, str(verdict)]
        os.execve(interpreter, arguments, _ENVIRONMENT)
    except OSError as error:
        _report(control, {"error": error.strerror or str(error)})
    finally:
        os._exit(1)


def _set_limits(settings: dict[str, Any]) -> None:
    # SIGXCPU, which can be caught, comes a second of processor time before SIGKILL, which cannot.
    resource.setrlimit(resource.RLIMIT_CPU, (settings["cpu_s"], settings["cpu_s"] + 1))
    for kind, name in (
        (resource.RLIMIT_FSIZE, "disk_bytes"),
        (resource.RLIMIT_NPROC, "processes"),
        (resource.RLIMIT_AS, "memory_bytes"),
    ):
        resource.setrlimit(kind, (settings[name], settings[name]))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_MAX_OPEN_FILES, _MAX_OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
    resource.setrlimit(resource.RLIMIT_MSGQUEUE, (0, 0))


def _report(control: int, message: dict[str, Any]) -> None:
    os.write(control, (json.dumps(message) + "\n").encode())
