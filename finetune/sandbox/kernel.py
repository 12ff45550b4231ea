"""Linux system calls that Python 3.11 has no function for. Standard library only: runs inside the jail.

Numbers and flags are from the kernel's headers (linux/mount.h, linux/sched.h, linux/prctl.h).
"""

import ctypes
import os
import platform
import signal
import struct

NEW_MOUNTS = 0x00020000
NEW_HOST_NAME = 0x04000000
NEW_IPC = 0x08000000
NEW_USERS = 0x10000000
NEW_PROCESSES = 0x20000000
NEW_NETWORK = 0x40000000

MOUNT_NO_SETUID, MOUNT_NO_DEVICES = 2, 4
_MOUNT_BIND, _MOUNT_RECURSIVE, _MOUNT_PRIVATE = 4096, 16384, 1 << 18
_ATTRIBUTE_READ_ONLY, _ATTRIBUTE_NO_SETUID = 1, 2
_AT_CURRENT_FOLDER, _AT_RECURSIVE = -100, 0x8000
_DETACH = 2
_SET_DEATH_SIGNAL, _SET_NO_NEW_PRIVILEGES = 1, 38
_MOUNT_SETATTR = 442
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Move this process to new namespaces of the kinds that the flags name."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def make_mounts_private() -> None:
    """Hide later mounts from the outside."""
    _mount(None, "/", None, _MOUNT_RECURSIVE | _MOUNT_PRIVATE, None)


def mount_tmpfs(folder: str, options: str) -> None:
    """Mount a file system in memory at `folder`."""
    _mount("tmpfs", folder, "tmpfs", MOUNT_NO_SETUID | MOUNT_NO_DEVICES, options)


def bind(source: str, target: str) -> None:
    """Bind `source`, with all mounts below it, to `target`."""
    _mount(source, target, None, _MOUNT_BIND | _MOUNT_RECURSIVE, None)


def make_read_only(target: str, *, recursive: bool) -> None:
    """Disable writes and set-user-id programs for the mount at `target`; needs Linux 5.12."""
    attributes = struct.pack("QQQQ", _ATTRIBUTE_READ_ONLY | _ATTRIBUTE_NO_SETUID, 0, 0, 0)
    _system_call(
        _MOUNT_SETATTR,
        ctypes.c_int(_AT_CURRENT_FOLDER),
        target.encode(),
        ctypes.c_uint(_AT_RECURSIVE if recursive else 0),
        attributes,
        ctypes.c_size_t(len(attributes)),
        name="mount_setattr",
    )


def pivot_root(new_root: str, old_root: str) -> None:
    """Make `new_root` the root and move the previous root to `old_root`."""
    number = _PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(f"pivot_root: the number of this call on {platform.machine()} is not known here")
    _system_call(number, new_root.encode(), old_root.encode(), name="pivot_root")


def detach(folder: str) -> None:
    """Unmount `folder`, even if files in it are open."""
    _check(_libc.umount2(folder.encode(), ctypes.c_int(_DETACH)), "umount2")


def die_with_parent() -> None:
    """Tell the kernel to kill this process when the thread that started it ends."""
    _check(_libc.prctl(_SET_DEATH_SIGNAL, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0), "prctl")


def give_up_new_privileges() -> None:
    """Prevent programs started later from gaining privileges by set-user-id bits or file capabilities."""
    one, zero = ctypes.c_ulong(1), ctypes.c_ulong(0)
    _check(_libc.prctl(_SET_NO_NEW_PRIVILEGES, one, zero, zero, zero), "prctl")


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None) -> None:
    encoded = [None if text is None else text.encode() for text in (source, target, kind, options)]
    result = _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    _check(result, f"mount of {target}")


def _system_call(number: int, *arguments: object, name: str) -> None:
    _check(_libc.syscall(ctypes.c_long(number), *arguments), name)


def _check(result: int, name: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
