"""The system calls that a jailed program may not make, refused by the kernel (seccomp, set up by libseccomp).

Standard library only: runs inside the jail. Every system with systemd or apt has libseccomp, which handles call numbers
per processor, argument checks, and calls by another architecture's numbers (which kill the program).
"""

import ctypes
import errno
import os

from finetune.sandbox import kernel

_REFUSED = (
    # namespaces, in which a program would become root again
    "unshare", "setns",
    # mounts
    "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick",
    "mount_setattr",
    # keyrings, which no namespace separates
    "add_key", "request_key", "keyctl",
    # large parts of the kernel that Python programs have no use for
    "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register", "ptrace",
)  # fmt: skip
_NAMESPACES = (
    kernel.NEW_MOUNTS,
    kernel.NEW_HOST_NAME,
    kernel.NEW_IPC,
    kernel.NEW_USERS,
    kernel.NEW_PROCESSES,
    kernel.NEW_NETWORK,
    0x02000000,  # control groups
)

# seccomp.h
_ALLOW, _FAIL_WITH = 0x7FFF0000, 0x00050000
_MASKED_EQUAL = 7
_UNKNOWN = -1


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("mask", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
    )


class Filter:
    """A seccomp filter. Create it outside of the jail, where the library is found; load it in the jailed process."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libseccomp.so.2")
        except OSError:
            message = "libseccomp.so.2 is not installed: install the package libseccomp2 or libseccomp"
            raise OSError(errno.ENOENT, message) from None
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._library.seccomp_init.argtypes = [ctypes.c_uint32]
        self._library.seccomp_load.argtypes = [ctypes.c_void_p]
        self._context = self._library.seccomp_init(_ALLOW)
        for name in _REFUSED:
            self._refuse(name, errno.EPERM)
        for flag in _NAMESPACES:
            self._refuse("clone", errno.EPERM, _Comparison(0, _MASKED_EQUAL, flag, flag))
        # Its flags are in memory, which a filter cannot read; on ENOSYS, C libraries fall back to clone.
        self._refuse("clone3", errno.ENOSYS)

    def load(self) -> None:
        """Apply the filter to this process and all processes it starts. Raises OSError."""
        self._check(self._library.seccomp_load(self._context), "seccomp_load")

    def _refuse(self, name: str, code: int, *comparisons: _Comparison) -> None:
        number = self._library.seccomp_syscall_resolve_name(name.encode())
        if number == _UNKNOWN:
            raise OSError(errno.ENOSYS, f"this libseccomp does not know {name}: install a newer one (2.5)")
        result = self._library.seccomp_rule_add_array(
            ctypes.c_void_p(self._context),
            ctypes.c_uint32(_FAIL_WITH | code),
            ctypes.c_int(number),
            ctypes.c_uint(len(comparisons)),
            (_Comparison * len(comparisons))(*comparisons),
        )
        self._check(result, f"seccomp rule for {name}")

    def _check(self, result: int, what: str) -> None:
        if result != 0:
            raise OSError(-result, f"{what}: {os.strerror(-result)}")
