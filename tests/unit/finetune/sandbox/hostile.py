"""Programs that mean harm, for the sandbox only.

Each does bounded harm, to things of the test's own: were the sandbox broken, the test must fail and not the machine.
"""

ENDLESS_LOOP = "while True: pass"

SLEEP = "import time; time.sleep(60)"

FORK_BOMB = """
import os
# At most 1,024 processes, far more than any limit in the tests.
for _ in range(10):
    try:
        os.fork()
    except OSError:
        pass
while True:
    pass
"""

COUNT_FORKS = """
import os, time
forks = 0
try:
    for forks in range(1000):
        if os.fork() == 0:
            time.sleep(60)
except OSError:
    pass
print(forks)
"""

THREADS = """
import threading, time
threads = 0
try:
    for threads in range(1000):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
except RuntimeError:
    pass
print(threads)
"""

DETACHED_CHILD = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for file in range(3, 64):
            try:
                os.close(file)
            except OSError:
                pass
        time.sleep(60)
        os._exit(0)
    os._exit(0)
"""

IGNORES_SIGNALS = """
import signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    pass
"""

MEMORY_HOG = """
blocks = []
while True:
    blocks.append(bytearray(10_000_000))
"""

HUGE_OUTPUT = "while True: print('x' * 10_000)"

DISK_HOG = """
for number in range(100):
    with open(f"file{number}", "wb") as file:
        file.write(bytes(1_000_000))
"""

TOO_MANY_FILES = "files = [open('/dev/null') for _ in range(1000)]"

CRASH = "import ctypes; ctypes.string_at(0)"

DEEP_NESTING = "exec('(' * 100_000 + ')' * 100_000)"

KILL = """
import os, signal
for process in ({process}, os.getppid()):
    try:
        os.kill(process, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
"""

NETWORK = """
import socket
for family, address in ((socket.AF_INET, ("127.0.0.1", {port})), (socket.AF_INET, ("8.8.8.8", 53))):
    with socket.socket(family) as connection:
        connection.settimeout(2)
        try:
            connection.connect(address)
        except OSError:
            continue
        print("connected to", address)
"""

MOUNT = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.mount(b"/lib", b"/sandbox", None, 4096, None), libc.chroot(b"/sandbox"), libc.setuid(0))
"""
